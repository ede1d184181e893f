//! A host of ralph in containers, as `Dockerfile` and `compose.yaml` describe it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use ralph::engine::{Engine, EngineEndpoint};

use super::support::engine::{docker, named};
use super::support::ralph::{Ended, Place, finish, program, waited_for};
use super::support::{self, base};
use crate::need;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The services of `compose.yaml`, which end when it is dropped.
struct Deployment {
    compose: String,
    socket: String,
    project: String,
    port: u16,
    place: Place,
}

impl Deployment {
    async fn start(engine: &Engine) -> Result<Self, String> {
        let (compose, buildx) = (named("RALPH_TEST_COMPOSE")?, named("RALPH_TEST_BUILDX")?);
        let EngineEndpoint::Unix(socket) = engine.endpoint() else {
            return Err(format!("{} is no socket", engine.endpoint()));
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let deployment = Self {
            compose,
            socket: socket.display().to_string(),
            project: format!("ralph-test-{}", std::process::id()),
            port: port.unwrap().port(),
            place: Place::bare(),
        };
        let base = base::tools(engine).await?;
        deployment.build(&buildx, &base);
        let up = deployment.compose(&["up", "--detach", "--no-build"]);
        up.expect(0, &[]);
        Ok(deployment)
    }

    fn image(&self) -> String {
        format!("{}:host", self.project)
    }

    /// Builds the image from the Dockerfile, with the program that the tests were built with.
    fn build(&self, buildx: &str, base: &str) {
        let context = self.place.path().join("program");
        fs::create_dir(&context).unwrap();
        fs::copy(program(), context.join("ralph")).unwrap();
        fs::write(
            context.join("Dockerfile"),
            "FROM scratch\nCOPY ralph /program/ralph\n",
        )
        .unwrap();
        let program = format!("{}:program", self.project);
        let build = |args: &[&str], context: &Path| {
            let mut command = Command::new(buildx);
            command.args(["build", "--quiet"]).args(args).arg(context);
            let ended = finish(command.env("DOCKER_HOST", format!("unix://{}", self.socket)));
            ended.expect(0, &[]);
        };
        build(&["--tag", &program], &context);
        let of_program = format!("PROGRAM_IMAGE={program}");
        let of_base = format!("BASE_IMAGE={base}");
        let args = ["--build-arg", &of_program, "--build-arg", &of_base];
        build(&[&args[..], &["--tag", &self.image()]].concat(), Path::new(ROOT));
    }

    fn compose(&self, args: &[&str]) -> Ended {
        let mut command = Command::new(&self.compose);
        command
            .args(["--project-name", &self.project, "--file"])
            .arg(Path::new(ROOT).join("compose.yaml"))
            .args(["--ansi", "never"])
            .args(args)
            .env("DOCKER_HOST", format!("unix://{}", self.socket))
            .env("DOCKER_SOCKET", &self.socket)
            .env("HOST_IMAGE", self.image())
            .env("HOST_PORT", self.port.to_string())
            .env("RALPH_HOME", self.place.home());
        finish(&mut command)
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        let _ = self.compose(&["down", "--volumes", "--timeout", "10"]);
    }
}

/// Sandboxes are containers beside it: they find their workspaces, since the data directory has one path inside and outside.
#[tokio::test(flavor = "multi_thread")]
async fn compose_starts_a_dashboard_that_uses_the_engine_of_the_host() {
    let engine = need!(support::engine::engine().await);
    let image = need!(base::image(&engine).await);
    let deployment = need!(Deployment::start(&engine).await);
    let logs = || deployment.compose(&["logs", "ralph"]).stdout;
    assert!(
        waited_for(
            || logs().contains("Open the dashboard, within 15 minutes and once: http://localhost:8000/")
        ),
        "{}",
        logs()
    );
    let page = reqwest::get(format!("http://127.0.0.1:{}/", deployment.port)).await;
    let page = page.unwrap();
    assert_eq!((page.status().as_u16(), page.url().path()), (200, "/login"));

    let of_image = format!("sandbox.image={image}");
    let args = ["exec", "-T", "ralph", "ralph", "selftest", "--set", &of_image];
    let tested = deployment.compose(&[&args[..], &["--set", "agent.name=actions"]].concat());
    for passed in [
        "create sandbox",
        "network policy",
        "a file is written and read",
        "evidence is collected",
    ] {
        assert!(tested.stdout.contains(&format!("PASS  {passed}")), "{tested:?}");
    }
    deployment.compose(&["down", "--timeout", "60"]).expect(0, &[]);
    let project = format!("label=com.docker.compose.project={}", deployment.project);
    assert_eq!(
        docker(&engine, &["ps", "--all", "--quiet", "--filter", &project]),
        ""
    );
    for image in [deployment.image(), format!("{}:program", deployment.project)] {
        docker(&engine, &["rmi", &image]);
    }
}
