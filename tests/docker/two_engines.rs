//! A second engine, as `tests/run` starts it, beside the engine that runs already.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use ralph::engine::Engine;
use tempfile::TempDir;

use crate::elsewhere::Elsewhere;
use crate::need;
use crate::support::engine::{docker, engine, engine_at};
use crate::support::ralph::eventually;
use crate::support::skip;

const IMAGE: &str = "ralph-test-two-engines:1";

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_do_not_break_the_network_of_each_other() {
    let present = need!(engine().await);
    let elsewhere = need!(Elsewhere::new().await);
    let second = need!(SecondEngine::start());
    let own = engine_at(&second.host()).await.unwrap();
    let (bridge, own_bridge) = (bridge_of(&present), bridge_of(&own));
    assert_ne!(bridge, own_bridge);
    let before = address_of(&bridge);
    assert!(before.contains(&bridge), "{before}");

    for engine in [&present, &own] {
        docker(engine, &["import", path(&second.image()), IMAGE]);
    }
    // Both ways round: whichever came last must not have taken the network of the other.
    for engine in [&present, &own, &present, &own] {
        assert_reaches(engine, &elsewhere);
    }
    drop(second);
    assert_reaches(&present, &elsewhere);
    docker(&present, &["image", "rm", IMAGE]);
    assert_eq!(address_of(&bridge), before, "the bridge of the host");
    assert_eq!(address_of(&own_bridge), "", "the bridge of the second engine");
    let rules = Command::new("iptables").arg("--list-rules").output().unwrap();
    let rules = String::from_utf8(rules.stdout).unwrap();
    assert!(!rules.contains(&own_bridge), "{rules}");
}

/// A container with a network of this engine connects to the address.
fn assert_reaches(engine: &Engine, elsewhere: &Elsewhere) {
    let line = elsewhere.spelled("/busybox nc -w 60 {address} 8080");
    let mut args = vec!["run", "--rm", IMAGE];
    args.extend(line.split(' '));
    let printed = docker(engine, &args);
    assert!(printed.contains("hello"), "{}: {printed}", engine.endpoint());
}

fn bridge_of(engine: &Engine) -> String {
    let format = "{{index .Options \"com.docker.network.bridge.name\"}}";
    let name = docker(engine, &["network", "inspect", "bridge", "--format", format]);
    name.trim().to_owned()
}

/// Nothing if there is no such device.
fn address_of(bridge: &str) -> String {
    let shown = Command::new("ip")
        .args(["-4", "-oneline", "address", "show", "dev", bridge])
        .output();
    String::from_utf8(shown.unwrap().stdout).unwrap()
}

struct SecondEngine {
    dir: TempDir,
    process: Child,
}

impl SecondEngine {
    fn start() -> Result<Self, String> {
        skip::program("dockerd")?;
        skip::program("iptables")?;
        let busybox = skip::program("busybox")?;
        if !rustix::process::geteuid().is_root() {
            return Err("only root can start an engine".to_owned());
        }
        let dir = TempDir::new().unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/docker-engine");
        let process = Command::new(script)
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let second = Self { dir, process };
        let packed = Command::new("tar")
            .args(["--create", "--dereference", "--file", path(&second.image())])
            .args(["--directory", path(busybox.parent().unwrap()), "busybox"])
            .status();
        assert!(packed.unwrap().success());
        eventually("the second engine answers", || second.answers());
        Ok(second)
    }

    fn host(&self) -> String {
        format!("unix://{}", path(&self.dir.path().join("docker.sock")))
    }

    /// A file system with busybox in it.
    fn image(&self) -> std::path::PathBuf {
        self.dir.path().join("image.tar")
    }

    fn answers(&self) -> bool {
        let asked = Command::new("docker")
            .args(["--host", &self.host(), "version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        asked.unwrap().success()
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
