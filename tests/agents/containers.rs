//! Whole tasks in containers, with the programs mounted into them.

use std::net::IpAddr;

use ralph::engine::Engine;
use rstest::rstest;

use crate::bench::{Bench, KEY, Program, says_hello_in};
use crate::need;
use crate::support::engine::docker;
use crate::support::model_server::Teller;
use crate::support::ralph::finish;
use crate::support::{base, engine};

#[rstest]
#[case::claude(Program::Claude)]
#[case::codex(Program::Codex)]
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_in_a_container(#[case] program: Program) {
    let engine = need!(engine::engine().await);
    let image = need!(base::image(&engine).await);
    let network = Bridge::make(&engine, program.name());
    let sessions = vec![says_hello_in("a.txt", "M1.1"), says_hello_in("b.txt", "M1.2")];
    let bench = need!(Bench::listening(network.address(), program, Teller::of(sessions)).await);
    bench.in_containers_of(&image, network.address());
    let ended = finish(
        bench
            .ralph(&["run"])
            .env("DOCKER_HOST", engine.endpoint().to_string()),
    );
    ended.expect(0, &["agent ", "[x] M1.1", "[x] M1.2", "done: "]);
    assert_eq!(bench.handed_back("b.txt"), "hello\n");
    assert!(!ended.stderr.contains(KEY), "{ended:?}");
}

/// A network of the engine's own, for an address of this machine that containers reach. Removed when dropped.
struct Bridge<'a> {
    engine: &'a Engine,
    name: String,
}

impl<'a> Bridge<'a> {
    fn make(engine: &'a Engine, purpose: &str) -> Self {
        let name = format!("ralph-test-{purpose}-{}", std::process::id());
        docker(engine, &["network", "create", &name]);
        Self { engine, name }
    }

    fn address(&self) -> IpAddr {
        let gateway = "{{(index .IPAM.Config 0).Gateway}}";
        let shown = docker(
            self.engine,
            &["network", "inspect", "--format", gateway, &self.name],
        );
        shown.trim().parse().unwrap()
    }
}

impl Drop for Bridge<'_> {
    fn drop(&mut self) {
        docker(self.engine, &["network", "rm", &self.name]);
    }
}
