//! OCI runtimes other than the default of the engine (`sandbox.docker.runtime`).

use std::fs;
use std::process::Command;

use ralph::network::Policy;
use ralph::sandbox::SandboxSpec;
use ralph::sandbox::docker::{SealError, provider};
use serde_json::json;
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::docker_test::{DockerTest, prints, sandbox_dirs};
use crate::need;
use crate::sealed::holder;
use crate::site::Site;
use crate::support::engine::{self, Which, docker};
use crate::support::ralph::finish;
use crate::support::{base, skip};

/// The version that Debian 12 has.
const GVISOR: &str = "20221219";

/// A test on an engine that knows runc and gVisor by other names.
async fn room(runtime: &str) -> Result<(Daemon, DockerTest), String> {
    let (usual, runsc) = (skip::program("runc")?, skip::program("runsc")?);
    let dir = TempDir::new().unwrap();
    let runtimes = json!({ "runtimes": {
        "other-runc": { "path": usual },
        "gvisor": { "path": runsc, "runtimeArgs": ["--network=host", "--oci-seccomp"] },
    }});
    let file = dir.path().join("daemon.json");
    fs::write(&file, runtimes.to_string()).unwrap();
    let daemon = Daemon::with(["--config-file".to_owned(), file.display().to_string()]).await?;
    let mut options = engine::options(dir.path());
    options.engine.env.insert("DOCKER_HOST".to_owned(), daemon.host());
    options.runtime = Some(runtime.to_owned());
    let room = DockerTest::on(daemon.engine().await, options, base::NAME.to_owned(), dir);
    Ok((daemon, room))
}

#[tokio::test]
async fn a_sandbox_runs_with_the_runtime_that_is_set_and_its_holder_does_not() {
    let (_daemon, room) = need!(room("other-runc").await);
    let sandbox = room.create().await;
    let runtime = |container: &str| room.inspect(container, "{{.HostConfig.Runtime}}");
    assert_eq!(runtime(sandbox.id()), "other-runc");
    assert_eq!(runtime(&holder(sandbox.as_ref())), "runc");
    assert_eq!(prints(sandbox.as_ref(), "echo here").await, "here\n");
    sandbox.verify().await.unwrap();
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_sandbox_of_another_runtime_is_not_reused() {
    let (daemon, room) = need!(room("other-runc").await);
    let sandbox = room.create().await;
    sandbox.stop().await.unwrap();
    let mut options = engine::options(room.dir.path());
    options.engine.env.insert("DOCKER_HOST".to_owned(), daemon.host());
    let usual = provider(options);
    let reopened = ralph::sandbox::Provider::reopen(&usual, &room.spec)
        .await
        .unwrap();
    assert!(reopened.is_none());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn the_gvisor_of_debian_12_cannot_verify_a_seal_and_nothing_runs() {
    let (daemon, room) = need!(room("gvisor").await);
    let version = Command::new("runsc").arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    if !version.contains(GVISOR) {
        return skip::record(&format!("not the gVisor of Debian 12: {version}"));
    }
    // It does run containers.
    let start = [
        "run",
        "--rm",
        "--runtime",
        "gvisor",
        "--network",
        "none",
        base::NAME,
    ];
    let printed = docker(&room.engine, &[&start[..], &["cat", "/proc/version"]].concat());
    assert!(printed.starts_with("Linux version 4.4.0"), "{printed}");
    // Also where no network is sealed.
    for network in [Policy::deny(), Policy::allow_all()] {
        let spec = SandboxSpec {
            network,
            ..room.spec.clone()
        };
        let refused = room.provider.create(&spec).await.map(drop).unwrap_err();
        let source = refused.cause::<SealError>().expect("it is not sealed");
        assert!(
            matches!(source, SealError::NoGuestInRuntime(runtime) if runtime == "gvisor"),
            "{source:?}"
        );
        assert!(refused.hint().unwrap().contains("newer version"));
        let left = docker(&room.engine, &["ps", "--all", "--quiet"]);
        assert_eq!((left.as_str(), sandbox_dirs(room.dir.path())), ("", 0));
    }

    let site = Site::on(daemon.engine().await, base::NAME);
    let env = finish(site.ralph(&["doctor", "env"]).env("DOCKER_HOST", daemon.host()));
    assert!(
        env.stdout
            .contains("other runtimes: gvisor, other-runc (sandbox.docker.runtime)"),
        "{env:?}"
    );
}

#[tokio::test]
async fn a_runtime_that_an_engine_cannot_use_is_refused_by_name() {
    let site = need!(Site::new().await);
    let podman = need!(engine::engine_of(Which::Podman, site.place.path()).await);
    let engines = [
        (
            site.engine.endpoint().to_string(),
            "the engine has no runtime `nosuch` (sandbox.docker.runtime); it has: ",
        ),
        (
            podman.endpoint().to_string(),
            "sandbox.docker.runtime is `nosuch`, but podman chooses no runtime by container",
        ),
    ];
    for (host, expected) in engines {
        let mut selftest = site.ralph(&["selftest"]);
        selftest.env("DOCKER_HOST", host);
        let ended = finish(selftest.env("RALPH_SANDBOX__DOCKER__RUNTIME", "nosuch"));
        ended.expect(1, &[expected]);
    }
    site.expect_nothing_left();
}
