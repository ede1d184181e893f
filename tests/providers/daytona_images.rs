//! The planned image at Daytona: as a snapshot that Daytona builds, found again, listed and pruned.

use std::path::Path;
use std::process::Command;

use ralph::agent::actions::ACTIONS;
use ralph::image::{
    BuildMode, DockerfileContext, ImageReference, ImageSpec, Platform, ProjectLayer, ProjectLayerSource,
    ProjectName,
};
use ralph::sandbox::SandboxSpec;
use serde_json::{Value, json};

use crate::daytona::scene;
use crate::support::daytona::{Daytona, KEY};
use crate::support::ralph::{Ended, Place, finish, script, whole_task};
use crate::{need, witness};

/// A repository without `sandbox.image`, and a fake Daytona with fast sandboxes.
struct Site {
    daytona: Daytona,
    place: Place,
}

impl Site {
    async fn new() -> Result<Self, String> {
        let site = Self {
            daytona: Daytona::in_namespaces().await?,
            place: Place::new(),
        };
        site.configure("");
        Ok(site)
    }

    fn configure(&self, sandbox: &str) {
        let text = format!(
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"daytona\"\n{sandbox}\n\
             [sandbox.network]\npolicy = \"deny\"\n"
        );
        self.place.write("ralph.toml", &text);
    }

    fn ended(&self, mut command: Command) -> Ended {
        command.env("DAYTONA_API_URL", self.daytona.api_url());
        command.env("DAYTONA_API_KEY", KEY);
        // No engine answers there.
        command.env("DOCKER_HOST", "unix:///nowhere/docker.sock");
        finish(&mut command)
    }

    fn ralph(&self, args: &[&str]) -> Ended {
        let ended = self.ended(self.place.ralph(args));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    }

    fn run(&self) {
        let ended = self.ended(self.place.scripted(&script([whole_task()]), &[]));
        ended.expect(0, &["done: "]);
    }

    fn registered(&self) -> Vec<Value> {
        self.daytona.asked("POST /api/snapshots")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_planned_image_is_built_once_and_found_again() {
    let site = need!(Site::new().await);
    site.place
        .write(".agent-loop/dependencies", "postgresql-client\n");
    site.run();
    site.run();
    let registered = site.registered();
    assert_eq!(registered.len(), 1, "it was built twice");
    let dockerfile = registered[0]["buildInfo"]["dockerfileContent"].as_str().unwrap();
    let parts = [
        "ARG BASE_IMAGE=ralph-base\nFROM debian:trixie-slim AS ralph-base\n",
        "FROM ${BASE_IMAGE}\n",
        "    postgresql-client \\\n",
    ];
    for part in parts {
        assert!(dockerfile.contains(part), "{part:?} is not in {dockerfile}");
    }
    assert_eq!(registered[0]["imageName"], Value::Null);
    let name = registered[0]["name"].as_str().unwrap();
    assert!(name.starts_with("ralph-actions-repo-"), "{name}");
    let started = site.daytona.asked("POST /api/sandbox");
    assert!(
        started.iter().all(|asked| asked["snapshot"] == name),
        "{started:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_listed_rebuilt_and_pruned() {
    let site = need!(Site::new().await);
    let built = |args: &[&str]| site.ralph(args).stdout.trim_end().to_owned();
    site.place.write(".agent-loop/dependencies", "jq\n");
    let status = site.ralph(&["image", "status"]).stdout;
    assert!(status.contains(", missing\n"), "{status}");
    let first = built(&["image", "build"]);
    assert_eq!(built(&["image", "build"]), first);
    assert_eq!(site.registered().len(), 1);
    assert_eq!(built(&["image", "build", "--rebuild"]), first);
    assert_eq!(site.registered().len(), 2);

    site.place.write(".agent-loop/dependencies", "jq\ncurl\n");
    let second = built(&["image", "build"]);
    let used = "2026-01-01T00:00:00.000Z";
    // Someone else's, also with a name that begins like ralph's; another project's, used today or long ago.
    site.daytona
        .put_snapshot("ralph-base", &json!({ "lastUsedAt": used }));
    site.daytona.put_snapshot(
        "ralph-general-0123456789ab",
        &json!({ "general": true, "lastUsedAt": used }),
    );
    let now = jiff::Timestamp::now().to_string();
    site.daytona
        .put_snapshot("ralph-claude-other-0123456789ab", &json!({ "lastUsedAt": now }));
    site.daytona
        .put_snapshot("ralph-claude-old-0123456789ab", &json!({ "lastUsedAt": used }));
    let status = site.ralph(&["image", "status"]).stdout;
    for part in [
        format!("planned: {second}, present\n"),
        format!("old      {first}: used "),
        "other    ralph-claude-old-0123456789ab: used ".to_owned(),
    ] {
        assert!(status.contains(&part), "{part:?} is not in {status}");
    }
    assert!(!status.contains("ralph-base"), "{status}");
    let pruned = site.ralph(&["image", "prune"]);
    assert_eq!(pruned.stdout, format!("{first}\nralph-claude-old-0123456789ab\n"));
    let mut left = vec![
        second,
        "ralph-base".to_owned(),
        "ralph-claude-other-0123456789ab".to_owned(),
        "ralph-general-0123456789ab".to_owned(),
    ];
    left.sort();
    assert_eq!(site.daytona.snapshots(), left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_with_files_needs_a_registry_and_that_an_engine() {
    let site = need!(Site::new().await);
    site.place.write(
        ".agent-loop/Dockerfile.sandbox",
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY greeting /greeting\n",
    );
    let refused = site.ended(site.place.ralph(&["image", "build"]));
    refused.expect(
        2,
        &[
            "line 3 of `Dockerfile.sandbox` copies files",
            "set `sandbox.registry`",
        ],
    );
    site.configure("registry = \"registry.example/team\"");
    let refused = site.ended(site.place.ralph(&["image", "status"]));
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("start a container engine"), "{refused:?}");
    assert!(site.registered().is_empty());
}

#[tokio::test]
async fn daytona_builds_base_and_layer_from_one_dockerfile() {
    let scene = need!(scene().await);
    let image = scene.spec.image.clone().unwrap();
    let mode = BuildMode::Template {
        base: ImageReference::parse(&image).unwrap(),
        dockerfile: format!("FROM {image}\nRUN echo base > /base\n"),
    };
    let layer = "ARG BASE_IMAGE\nARG TEXT=layer\nFROM ${BASE_IMAGE}\nARG TEXT\nRUN echo $TEXT > /layer\n";
    let layer = ProjectLayer {
        name: ProjectName::from_directory(Path::new("app")),
        source: ProjectLayerSource::Dockerfile,
        file: DockerfileContext::alone(layer.to_owned()),
    };
    let planned = ImageSpec::new(ACTIONS.image, Platform::LinuxAmd64, mode, Some(layer)).unwrap();
    let spec = SandboxSpec {
        image: Some(planned.repository()),
        dockerfile: Some(planned.single_dockerfile().unwrap()),
        ..scene.spec.clone()
    };
    let images = scene.provider.images().unwrap();
    let name = images.ensure(&spec).await.unwrap().unwrap();
    let sandbox = scene.provider.create(&spec).await.unwrap();
    let said = witness(sandbox.as_ref(), "cat /base /layer").await;
    assert_eq!(said.stdout.text(), "base\nlayer\n");
    let listed = images.list(&spec).await.unwrap();
    assert!(
        listed
            .iter()
            .any(|one| one.name == name && one.in_use && one.is_planned),
        "{listed:?}"
    );
    sandbox.close().await.unwrap();
    assert!(images.remove("ralph-base").await.is_err());
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_built_says_why_and_what_to_do() {
    let scene = need!(scene().await);
    let spec = SandboxSpec {
        image: Some("agent-loop-sandbox-actions".to_owned()),
        dockerfile: Some("FRUM scratch\n".to_owned()),
        ..scene.spec.clone()
    };
    let error = scene.provider.images().unwrap().ensure(&spec).await.unwrap_err();
    let told = crate::full_message(&error).to_lowercase();
    assert!(told.contains("build_failed") && told.contains("frum"), "{told}");
    assert!(told.contains("`--rebuild`"), "{told}");
}
