//! The planned image at Daytona: as a snapshot that Daytona builds, found again, listed and pruned.

use std::path::Path;
use std::process::Command;

use ralph::agent::actions::ACTIONS;
use ralph::image::{
    BuildContext, BuildMode, DockerfileContext, HashCache, ImageReference, ImageSpec, Platform, ProjectLayer,
    ProjectLayerSource, ProjectName,
};
use ralph::sandbox::SandboxSpec;
use serde_json::{Value, json};

use crate::daytona::scene;
use crate::support::daytona::{Daytona, Fault, KEY};
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

/// Colleagues have projects of the same name, whose snapshots have similar names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_colleagues_snapshot_of_a_project_of_the_same_name_is_kept_for_30_days() {
    let site = need!(Site::new().await);
    site.place.write(".agent-loop/dependencies", "jq\n");
    let first = site.ralph(&["image", "build"]).stdout.trim_end().to_owned();
    let stem = first.rsplit_once('-').unwrap().0;
    let (recent, old) = (format!("{stem}-0123456789ab"), format!("{stem}-ba9876543210"));
    let now = jiff::Timestamp::now();
    let before = now - jiff::SignedDuration::from_hours(31 * 24);
    for (name, used) in [(&first, now), (&recent, now), (&old, before)] {
        let fields = json!({ "lastUsedAt": used.to_string() });
        site.daytona.put_snapshot(name, &fields);
    }
    site.place.write(".agent-loop/dependencies", "jq\ncurl\n");
    // Another clone of the project made neither of them.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = site.place.ralph(&["image", "prune", "--dry-run"]);
    command.env("RALPH_HOME", elsewhere.path());
    assert_eq!(site.ended(command).stdout, format!("{old}\n"));
    let pruned = site.ralph(&["image", "prune"]).stdout;
    let mut expected = [first, old];
    expected.sort();
    assert_eq!(pruned, format!("{}\n{}\n", expected[0], expected[1]));
    assert_eq!(site.daytona.snapshots(), [recent]);
}

const LAYER: &str = ".agent-loop/Dockerfile.sandbox";
const COPYING: &str = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY greeting /greeting\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_layer_are_sent_once_and_name_the_snapshot() {
    let site = need!(Site::new().await);
    let build = |args: &[&str]| site.ralph(args).stdout.trim_end().to_owned();
    let sent = |method: &str| {
        let sent = site.daytona.uploads().into_iter();
        sent.filter(|call| call.starts_with(method)).count()
    };
    site.place.write(LAYER, COPYING);
    site.place.write(".agent-loop/greeting", "hello\n");
    site.place.write(".agent-loop/notes", "copied nowhere\n");
    let first = build(&["image", "build"]);
    assert_eq!(build(&["image", "build"]), first);
    assert_eq!((site.registered().len(), sent("HEAD"), sent("PUT")), (1, 1, 1));
    let contexts = site.registered()[0]["buildInfo"]["contextHashes"].clone();
    assert_eq!(contexts.as_array().unwrap().len(), 1, "{contexts}");

    // A file that is not copied changes nothing, and the store keeps what it has.
    site.place.write(".agent-loop/notes", "still copied nowhere\n");
    assert_eq!(build(&["image", "build", "--rebuild"]), first);
    assert_eq!((site.registered().len(), sent("HEAD"), sent("PUT")), (2, 2, 1));

    site.place.write(".agent-loop/greeting", "good day\n");
    let second = build(&["image", "build"]);
    assert_ne!(second, first);
    assert_eq!(sent("PUT"), 2);
    assert_ne!(site.registered()[2]["buildInfo"]["contextHashes"], contexts);
    site.run();
    let started = site.daytona.asked("POST /api/sandbox");
    assert_eq!(started[0]["snapshot"], second.as_str());
    assert_eq!((site.registered().len(), site.daytona.stored()), (3, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_dockerfile_is_sent_with_its_files() {
    let site = need!(Site::new().await);
    site.place.write(
        "own/Dockerfile",
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY . /own\n",
    );
    site.place.write("own/greeting", "hello\n");
    let command = ["image", "build", "--dockerfile", "own/Dockerfile"];
    site.ralph(&command);
    let build = site.registered()[0]["buildInfo"].clone();
    assert_eq!(
        build["dockerfileContent"],
        "ARG BASE_IMAGE\nARG BASE_IMAGE=debian:trixie-slim\nFROM ${BASE_IMAGE}\nCOPY . /own\n"
    );
    assert_eq!(
        (
            build["contextHashes"].as_array().unwrap().len(),
            site.daytona.stored()
        ),
        (1, 1)
    );
    site.place.write(".agent-loop/dependencies", "jq\n");
    let refused = site.ended(site.place.ralph(&command));
    refused.expect(
        2,
        &[
            "`.agent-loop/` adds a layer to `Dockerfile`",
            "set `sandbox.registry`",
        ],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_sent_needs_a_registry_and_that_an_engine() {
    let site = need!(Site::new().await);
    site.place.write(LAYER, COPYING);
    let refused = site.ended(site.place.ralph(&["image", "build"]));
    refused.expect(
        2,
        &["line 3 of `Dockerfile.sandbox` copies `greeting`, which is not"],
    );
    std::os::unix::fs::symlink("notes", site.place.repo().join(".agent-loop/greeting")).unwrap();
    let refused = site.ended(site.place.ralph(&["image", "build"]));
    refused.expect(
        2,
        &["copies the symbolic link `greeting`", "set `sandbox.registry`"],
    );
    site.configure("registry = \"registry.example/team\"");
    let refused = site.ended(site.place.ralph(&["image", "status"]));
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("start a container engine"), "{refused:?}");
    assert!(site.registered().is_empty() && site.daytona.uploads().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_stored_say_what_to_do_and_no_credential() {
    let site = need!(Site::new().await);
    site.place.write(LAYER, COPYING);
    site.place.write(".agent-loop/greeting", "hello\n");
    let refusals: [(&str, Vec<Fault>); 3] = [
        ("PUT /daytona-volume-builds", vec![Fault::Status(403)]),
        ("PUT /daytona-volume-builds", vec![Fault::Status(503); 4]),
        ("GET /api/object-storage/push-access", vec![Fault::Status(403)]),
    ];
    for (requests, faults) in refusals {
        let at_store = requests.starts_with("PUT");
        site.daytona.fail(requests, faults);
        let ended = site.ended(site.place.ralph(&["image", "build"]));
        assert_ne!(ended.code, Some(0), "{ended:?}");
        let output = format!("{}{}", ended.stdout, ended.stderr);
        if at_store {
            for part in [
                "cannot send the files of the build",
                "InternalError: The request failed.",
                "set `sandbox.registry`",
            ] {
                assert!(output.contains(part), "{part:?} is not in {output}");
            }
        }
        for secret in Daytona::STORAGE_CREDENTIALS.into_iter().chain([KEY]) {
            assert!(!output.contains(secret), "{secret} is in {output}");
            let found = site
                .place
                .shell(&format!("! grep -rF -- '{secret}' \"$RALPH_HOME\" ."));
            finish(&mut { found }).expect(0, &[]);
        }
        site.daytona.forget_faults();
    }
    assert!(site.registered().is_empty());
    // A problem that passes is no problem.
    site.daytona
        .fail("PUT /daytona-volume-builds", [Fault::Status(503)]);
    site.ralph(&["image", "build"]);
    assert_eq!((site.registered().len(), site.daytona.stored()), (1, 1));
}

/// What makes the other tests worth something: the fake verifies signatures, and knows what it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fake_store_refuses_what_is_not_signed() {
    let daytona = need!(Daytona::in_namespaces().await);
    let http = reqwest::Client::new();
    let access = http.get(format!("{}/object-storage/push-access", daytona.api_url()));
    let access: Value = access
        .bearer_auth(KEY)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let url = format!(
        "{}/daytona-volume-builds/x/y/context.tar",
        access["storageUrl"].as_str().unwrap()
    );
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let scope = format!("{}/us-east-2/s3/aws4_request", &time[..8]);
    let put = http
        .put(url)
        .header("x-amz-security-token", Daytona::STORAGE_CREDENTIALS[2])
        .header("x-amz-content-sha256", ralph::engine::Digest::sha256(b"").hex())
        .header("x-amz-date", time)
        .header(
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential={}/{scope}, \
                 SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature={}",
                Daytona::STORAGE_CREDENTIALS[0],
                "0".repeat(64)
            ),
        );
    let answer = put.send().await.unwrap();
    assert_eq!(answer.status(), 403);
    let body = answer.text().await.unwrap();
    assert!(body.contains("SignatureDoesNotMatch"), "{body}");
    let unknown =
        json!({ "name": "n", "buildInfo": { "dockerfileContent": "FROM a", "contextHashes": ["y"] } });
    let create = http
        .post(format!("{}/snapshots", daytona.api_url()))
        .bearer_auth(KEY);
    assert_eq!(create.json(&unknown).send().await.unwrap().status(), 400);
    assert_eq!((daytona.stored(), daytona.snapshots().len()), (0, 0));
}

/// The sandbox sees the files with their content and mode, from whichever directory they were copied.
#[tokio::test]
async fn copied_files_arrive_in_the_sandbox() {
    let scene = need!(scene().await);
    let image = scene.spec.image.clone().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    std::fs::create_dir_all(dir.path().join("tools/deep")).unwrap();
    write("tools/deep/hello", "#!/bin/sh\necho run\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path().join("tools/deep/hello"), executable).unwrap();
    write("a.txt", "one\n");
    write("secret", "not copied\n");
    let hashes = tempfile::tempdir().unwrap();
    let hashes = HashCache::new(hashes.path(), ralph::clock::system());
    let mode = BuildMode::Template {
        base: ImageReference::parse(&image).unwrap(),
        dockerfile: format!("FROM {image}\nRUN true\n"),
    };
    let layer = ProjectLayer {
        name: ProjectName::from_directory(Path::new("app")),
        source: ProjectLayerSource::Dockerfile,
        file: DockerfileContext {
            context: BuildContext::read(dir.path(), &[], &hashes).unwrap(),
            ..DockerfileContext::alone(
                "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY tools *.txt /got/\nADD a.txt /added\n".to_owned(),
            )
        },
    };
    let planned = ImageSpec::new(ACTIONS.image, Platform::LinuxAmd64, mode, Some(layer)).unwrap();
    let spec = sent_spec(&planned, &scene.spec);
    let sandbox = scene.provider.create(&spec).await.unwrap();
    let said = witness(
        sandbox.as_ref(),
        "/got/deep/hello; cat /got/a.txt /added; ls /got",
    )
    .await;
    assert_eq!(said.stdout.text(), "run\none\none\na.txt\ndeep\n");
    sandbox.close().await.unwrap();
}

/// A sandbox of an image that Daytona builds.
fn sent_spec(planned: &ImageSpec, spec: &SandboxSpec) -> SandboxSpec {
    let single = planned.single_dockerfile().unwrap();
    SandboxSpec {
        image: Some(planned.repository()),
        dockerfile: Some(single.text),
        build_files: single.files,
        ..spec.clone()
    }
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
    let spec = sent_spec(&planned, &scene.spec);
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
    let message = crate::full_message(&error).to_lowercase();
    assert!(
        message.contains("build_failed") && message.contains("frum"),
        "{message}"
    );
    assert!(message.contains("`--rebuild`"), "{message}");
}
