//! `ralph image push` and `ralph image pull`, with a real registry.

use std::fs;
use std::process::Command;

use base64::Engine as _;
use ralph::engine::EngineImageReference;
use serde_json::{Value, json};

use super::project::{COPYING, Project};
use super::registry::{Door, Registry};
use super::support::chat_server::{Answer, ChatServer};
use super::support::daytona::{Daytona, KEY};
use super::support::json_shape;
use super::support::ralph::finish;
use crate::need;

/// A project with an image of its own, and a registry for it.
pub struct Sharing {
    pub project: Project,
    registry: Registry,
    tag: String,
}

impl Sharing {
    pub async fn new(door: Door) -> Result<Self, String> {
        let registry = Registry::start(door)?;
        let project = Project::new().await?;
        project.write("Dockerfile.sandbox", COPYING);
        project.write("greeting", &project.shop.name);
        let base = project.base("base");
        project.configure(
            &base,
            &format!("[sandbox]\nregistry = \"{}/team\"", registry.address()),
        );
        let tag = project.build(&[]).tag;
        Ok(Self {
            project,
            registry,
            tag,
        })
    }

    fn remote(&self) -> String {
        format!("{}/team/{}", self.registry.address(), self.tag)
    }

    /// Removes the image, as on a host that never had it.
    pub async fn forget(&self) {
        for name in [&self.tag, &self.remote()] {
            self.project.shop.engine.remove_image(name).await.unwrap();
        }
    }

    /// The command that pulls it.
    pub fn pull(&self) -> Command {
        self.project.image("pull", &["--dockerfile", "thin/Dockerfile"])
    }

    pub async fn close(self) {
        let remote = self.remote();
        self.project.shop.engine.remove_image(&remote).await.unwrap();
        self.project.close().await;
    }

    /// What `docker login` leaves.
    fn log_in(&self, password: &str) {
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("user:{password}"));
        let file = self.project.place.path().join("home/.docker/config.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let auths = json!({"auths": {self.registry.address(): {"auth": auth}}});
        fs::write(file, auths.to_string()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_host_pushes_another_pulls_in_place_of_building() {
    let sharing = need!(Sharing::new(Door::Open).await);
    let (project, tag, remote) = (&sharing.project, &sharing.tag, sharing.remote());
    let pushed = project.try_image("push", &["--json"]);
    pushed.expect(0, &[]);
    assert_eq!(
        json_shape::check(&["image", "push", "--json"], &pushed),
        Some("image-push")
    );
    let report: Value = serde_json::from_str(&pushed.stdout).unwrap();
    assert_eq!(report, json!({"image": tag, "remote": remote}));

    sharing.forget().await;
    let pulled = project.try_image("pull", &["--json"]);
    pulled.expect(0, &[]);
    assert_eq!(
        json_shape::check(&["image", "pull", "--json"], &pulled),
        Some("image-pull")
    );
    let report: Value = serde_json::from_str(&pulled.stdout).unwrap();
    assert_eq!(report, json!({"image": tag, "remote": remote, "pulled": true}));
    assert_eq!(project.run(tag, &["/bin/cat", "/greeting"]), project.shop.name);
    assert_eq!(project.build(&[]).steps, [""; 0]);

    let again = project.try_image("pull", &["--json"]);
    again.expect(0, &["use_local_image", "not pulled", "--force"]);
    let report: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(report["pulled"], false);
    let forced = project.try_image("pull", &["--force", "--json"]);
    let report: Value = serde_json::from_str(&forced.stdout).unwrap();
    assert_eq!(report["pulled"], true);

    let status: Value = serde_json::from_str(&project.try_image("status", &["--json"]).stdout).unwrap();
    let row = status["images"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["image"] == **tag)
        .unwrap();
    assert_eq!(row["pulled_from"], remote);
    sharing.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_under_the_planned_name_is_refused() {
    let sharing = need!(Sharing::new(Door::Open).await);
    let (project, remote) = (&sharing.project, sharing.remote());
    let foreign = project.shop.find("base").await.unwrap();
    let name = EngineImageReference::parse(&remote).unwrap();
    project.shop.engine.tag(&foreign.id, &name).await.unwrap();
    project.docker(&["push", "--quiet", &remote]);
    sharing.forget().await;

    let ended = project.try_image("pull", &[]);
    ended.expect(
        1,
        &[&remote, "is not the planned image", ", found none", "hint: "],
    );
    assert_eq!(project.id(&sharing.tag).await, None);
    assert_eq!(project.id(&remote).await, None);
    sharing.project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_build_than_the_recorded_one_is_refused() {
    let sharing = need!(Sharing::new(Door::Open).await);
    let (project, remote) = (&sharing.project, sharing.remote());
    project.try_image("push", &[]).expect(
        0,
        &["next: on another host with this configuration, `ralph image pull` takes it"],
    );
    project.try_build(&["--lock"]).expect(0, &[]);
    let file = project.place.repo().join("ralph.lock");
    let lock = fs::read_to_string(&file).unwrap();
    sharing.forget().await;
    project.try_image("pull", &[]).expect(0, &["next: "]);

    let at = lock.find("digest = \"sha256:").unwrap() + "digest = \"sha256:".len();
    let other = format!("{}{}{}", &lock[..at], "0".repeat(64), &lock[at + 64..]);
    fs::write(&file, other).unwrap();
    sharing.forget().await;
    let ended = project.try_image("pull", &[]);
    ended.expect(1, &[&remote, "does not match ralph.lock"]);
    assert_eq!(project.id(&sharing.tag).await, None);
    sharing.project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_is_given_the_users_own_login() {
    let sharing = need!(Sharing::new(Door::Locked).await);
    let project = &sharing.project;
    project
        .try_image("push", &[])
        .expect(1, &["ralph: the registry denied access to", "hint: "]);
    sharing.log_in("wrong");
    let refused = project.try_image("push", &[]);
    refused.expect(1, &["ralph: the registry denied access to"]);
    assert!(!refused.stderr.contains("wrong"), "{refused:?}");
    assert!(sharing.registry.is_empty());
    assert_eq!(project.id(&sharing.remote()).await, None);

    sharing.log_in("secret");
    project.try_image("push", &[]).expect(0, &[]);
    sharing.forget().await;
    project.try_image("pull", &[]).expect(0, &[]);
    project.shop.engine.remove_image(&sharing.remote()).await.unwrap();
    sharing.project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_image_is_pulled_and_pushed_as_it_is() {
    let sharing = need!(Sharing::new(Door::Open).await);
    let project = &sharing.project;
    let name = format!("{}/any:thing", sharing.registry.address());
    let image = project.shop.find("base").await.unwrap();
    let reference = EngineImageReference::parse(&name).unwrap();
    project.shop.engine.tag(&image.id, &reference).await.unwrap();
    project.configure(&project.base("base"), &format!("[sandbox]\nimage = \"{name}\""));
    project.try_image("push", &[]).expect(0, &[]);
    project.try_image("pull", &[]).expect(0, &["not pulled"]);
    project.shop.engine.remove_image(&name).await.unwrap();
    let pulled = project.try_image("pull", &[]);
    pulled.expect(0, &[]);
    assert_eq!(pulled.stdout.trim(), name);
    assert!(project.id(&name).await.is_some());
    project.shop.engine.remove_image(&name).await.unwrap();
    sharing.project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_registry_the_error_says_what_to_set() {
    let project = need!(Project::new().await);
    for command in ["pull", "push"] {
        project.try_image(command, &[]).expect_refused(&[
            "neither `sandbox.image` nor `sandbox.registry` is set",
            "hint: set `sandbox.registry = ",
        ]);
    }
    project.configure(&project.base("base"), "[sandbox]\nregistry = \"127.0.0.1:1\"");
    project
        .try_image("push", &[])
        .expect(1, &["the engine does not have ", "`ralph image build`"]);
    project.build(&[]);
    project
        .try_image("push", &[])
        .expect(1, &["cannot reach the registry"]);
    project
        .try_image("pull", &["--force"])
        .expect(1, &["cannot reach the registry"]);
    project.close().await;
}

/// The layer copies a file, so Daytona cannot build it: ralph pushes the image, and registers it by its name there.
#[tokio::test(flavor = "multi_thread")]
async fn daytona_gets_the_planned_image_from_the_registry() {
    let registry = need!(Registry::start(Door::Open));
    let context = tempfile::tempdir().unwrap();
    let project = need!(Project::on_debian_with_tools(context.path(), "").await);
    let daytona = Daytona::start(project.shop.engine.clone()).await;
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", "hello\n");
    let address = registry.address();
    let settings = format!(
        "[sandbox]\ntype = \"daytona\"\nregistry = \"{address}\"\n[sandbox.network]\npolicy = \"allow-all\"\n"
    );
    project.configure(&project.base("debian"), &settings);
    let answer = json!({"summary": "ready", "actions": []}).to_string();
    let model = ChatServer::start([Answer::text(&answer), Answer::text(&answer)]).await;
    let endpoint = format!("model_endpoint.base_url={}", model.base_url());
    for _ in 0..2 {
        let mut command = project.place.ralph(&["selftest", "--set", &endpoint]);
        command
            .env("DAYTONA_API_URL", daytona.api_url())
            .env("DAYTONA_API_KEY", KEY);
        let ended = finish(&mut Project::with_the_engine(command));
        for row in ["build image", "build project image", "create sandbox"] {
            assert!(ended.stdout.contains(&format!("PASS  {row}\n")), "{ended:?}");
        }
        assert!(ended.stdout.contains("PASS  snapshot ralph-"), "{ended:?}");
    }
    assert!(!registry.is_empty());
    let registered = daytona.asked("POST /api/snapshots");
    assert_eq!(registered.len(), 1, "{registered:?}");
    let image = registered[0]["imageName"].as_str().unwrap();
    let expected = format!("{address}/agent-loop-sandbox-actions-repo:v");
    assert!(image.starts_with(&expected), "{image}");
    project.docker(&["rmi", "--force", image]);
    drop(daytona);
    project.close().await;
}
