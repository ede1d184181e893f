//! The sealed network: what an allowed name does, what nothing else does, and what happens when a part of it is lost.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ralph::exec::{Command, Discard};
use ralph::gateway::audit::{Outcome, Record};
use ralph::gateway::{AddressGuard, Resolver};
use ralph::network::firewall::SEALED;
use ralph::network::probe::{Beacon, Canary, ProbeFailure, Seen, checks};
use ralph::network::{HostName, Policy, Rule};
use ralph::sandbox::docker::SealError;
use ralph::sandbox::{Egress, Provider, Sandbox, SandboxError, SandboxSpec};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::life::{disown, elsewhere};
use crate::need;
use crate::room::{Room, places, prints, shell};
use crate::site::LEFT_BEHIND;
use crate::support::engine::docker;

/// A server that an allowed name leads to, and a sandbox that may reach that name alone.
struct Sealed {
    room: Room,
    stand_in: StandIn,
    audit: Arc<Mutex<Vec<Record>>>,
}

impl Sealed {
    async fn new() -> Result<Self, String> {
        let mut room = Room::new().await?;
        let stand_in = StandIn::start().await;
        let audit = Arc::new(Mutex::new(Vec::new()));
        let rule = format!("allowed.test:{}", stand_in.port);
        room.spec.network = Policy::allowlist([Rule::parse(&rule).unwrap()]);
        room.spec.egress = Egress {
            resolver: Arc::new(Loopback),
            guard: AddressGuard::dangerously_opening(["127.0.0.0/8".parse().unwrap()]),
            audit: audit.clone(),
            ..Egress::default()
        };
        Ok(Self {
            room,
            stand_in,
            audit,
        })
    }

    /// Asks the allowed name from inside.
    async fn ask(&self, sandbox: &dyn Sandbox) -> String {
        let url = format!("http://allowed.test:{}/", self.stand_in.port);
        prints(
            sandbox,
            &format!("curl --silent --show-error --max-time 10 {url}"),
        )
        .await
    }

    /// Whether the allowed name cannot be reached from inside, which is seen at once.
    async fn is_closed(&self, sandbox: &str) -> bool {
        let (url, started) = (
            format!("http://allowed.test:{}/", self.stand_in.port),
            Instant::now(),
        );
        // The session is not asked: it may be gone with the rest.
        let asked = outside(&["exec", sandbox, "curl", "--silent", "--max-time", "10", &url]).await;
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
        !asked
    }
}

fn holder(sandbox: &dyn Sandbox) -> String {
    format!("{}-net", sandbox.id())
}

/// Whether `docker` with these arguments succeeds. The gateway works meanwhile.
async fn outside(args: &[&str]) -> bool {
    let done = tokio::process::Command::new("docker").args(args).output().await;
    done.unwrap().status.success()
}

/// Every name is on loopback.
struct Loopback;

#[async_trait]
impl Resolver for Loopback {
    async fn resolve(&self, _name: &HostName) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// Answers every request with `hello`, and counts them.
struct StandIn {
    port: u16,
    asked: Arc<Mutex<usize>>,
}

impl StandIn {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(0));
        let counted = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }
}

#[tokio::test]
async fn an_allowed_name_is_reached_and_written_down() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    assert!(sealed.stand_in.asked() >= 1);
    sandbox.close().await.unwrap();
    let audit = sealed.audit.lock().unwrap();
    let reached = audit
        .iter()
        .find(|record| record.port == Some(sealed.stand_in.port));
    assert_eq!(reached.unwrap().verdict, Outcome::Allowed);
    assert!(
        !audit
            .iter()
            .any(|record| record.host.as_deref() == Some("gateway.ralph.invalid"))
    );
}

#[rstest]
#[case::another_name(
    "curl --silent --show-error --max-time 10 http://denied.test/",
    "Could not resolve host"
)]
#[case::another_port(
    "curl --silent --show-error --max-time 10 http://allowed.test:4/",
    "Connection refused|Failed to connect"
)]
#[case::an_address("curl --silent --show-error --fail --max-time 10 http://192.0.2.1/", "403")]
#[case::an_address_on_another_port(
    "curl --silent --show-error --max-time 10 http://192.0.2.1:4/",
    "Failed to connect"
)]
#[case::the_metadata_service(
    "curl --silent --show-error --fail --max-time 10 http://169.254.169.254/",
    "403"
)]
#[case::ipv6(
    "curl --silent --show-error --max-time 10 http://[2001:db8::1]/",
    "Failed to connect|Couldn't connect"
)]
#[case::a_datagram(
    "bash -c 'exec 3<>/dev/udp/192.0.2.1/443; echo hi >&3; echo hi >&3'",
    "Connection refused"
)]
#[tokio::test]
async fn nothing_else_is_reached_and_that_is_seen_at_once(#[case] line: &str, #[case] said: &str) {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    let started = Instant::now();
    let exit = shell(sandbox.as_ref(), line).await;
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert!(!exit.success());
    let stderr = exit.stderr.text();
    assert!(said.split('|').any(|said| stderr.contains(said)), "{stderr}");
    assert_eq!(sealed.stand_in.asked(), 0);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn the_kernel_has_the_rules_that_are_printed() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    let pid = sealed.room.inspect(sandbox.id(), "{{.State.Pid}}");
    for program in ["iptables-save", "ip6tables-save"] {
        let program = need!(crate::support::skip::program(program));
        let saved = std::process::Command::new("nsenter")
            .args(["--net", "--target", &pid])
            .arg(program)
            .output()
            .unwrap();
        let saved = String::from_utf8(saved.stdout).unwrap();
        let lines: Vec<String> = saved
            .lines()
            .filter(|line| !line.starts_with('#'))
            // Packets and bytes so far.
            .map(|line| line.split(" [").next().unwrap().to_owned())
            .collect();
        let expected = SEALED.to_string().replace(" [0:0]", "");
        assert_eq!(lines, expected.lines().collect::<Vec<_>>());
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_rule_that_somebody_took_away_is_seen_before_the_next_iteration() {
    let sealed = need!(Sealed::new().await);
    let iptables = need!(crate::support::skip::program("iptables"));
    let sandbox = sealed.room.create().await;
    sandbox.verify().await.unwrap();
    let pid = sealed.room.inspect(sandbox.id(), "{{.State.Pid}}");
    let opened = std::process::Command::new("nsenter")
        .args(["--net", "--target", &pid])
        .arg(iptables)
        .args(["--policy", "OUTPUT", "ACCEPT"])
        .status();
    assert!(opened.unwrap().success());
    let seen = reason(sandbox.verify().await);
    assert!(
        matches!(&seen, SealError::Different(state) if state.contains(":OUTPUT ACCEPT")),
        "{seen:?}"
    );
    assert!(sealed.is_closed(sandbox.id()).await);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_way_out_that_somebody_made_is_seen_before_the_next_iteration() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    let pid = sealed.room.inspect(sandbox.id(), "{{.State.Pid}}");
    let ip = |args: &[&str]| {
        let within = ["--net", "--target", &pid, "ip"];
        let done = std::process::Command::new("nsenter")
            .args(within)
            .args(args)
            .status();
        assert!(done.unwrap().success(), "{args:?}");
    };
    ip(&["link", "add", "way-out", "type", "veth", "peer", "name", "way-in"]);
    sandbox.verify().await.unwrap();
    ip(&["link", "set", "way-out", "up"]);
    let seen = reason(sandbox.verify().await);
    assert!(
        matches!(&seen, SealError::Different(state) if state.contains("up way-out")),
        "{seen:?}"
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_is_killed_leaves_its_sandbox_closed_and_another_is_made() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    docker(&sealed.room.engine, &["kill", &holder(sandbox.as_ref())]);
    let mut tried = Ok(());
    // A moment may pass until it is seen.
    while tried.is_ok() {
        tried = sandbox.exec(&Command::new("true"), &mut Discard).await.map(drop);
    }
    let seen = reason(tried);
    assert!(matches!(seen, SealError::HolderEnded), "{seen:?}");
    assert!(sealed.is_closed(sandbox.id()).await);
    assert!(sandbox.verify().await.is_err());
    let asked = sealed.stand_in.asked();
    // Found again and started, it has a new network, sealed as the first.
    let again = sealed
        .room
        .provider
        .reopen(&sealed.room.spec)
        .await
        .unwrap()
        .unwrap();
    again.start().await.unwrap();
    assert_eq!(sealed.ask(again.as_ref()).await, "hello\n");
    assert!(sealed.stand_in.asked() > asked);
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_sandbox_without_its_holder_is_made_anew() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    docker(&sealed.room.engine, &["rm", "--force", &holder(sandbox.as_ref())]);
    assert!(
        sealed
            .room
            .provider
            .reopen(&sealed.room.spec)
            .await
            .unwrap()
            .is_none()
    );
    assert!(!sealed.room.has(sandbox.id()).await);
    assert_eq!(places(sealed.room.dir.path()), 0);
}

#[tokio::test]
async fn a_sandbox_that_was_stopped_is_sealed_again_when_it_starts() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    for _ in 0..2 {
        assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
        sandbox.stop().await.unwrap();
        let tried = sandbox.exec(&Command::new("true"), &mut Discard).await;
        assert!(matches!(tried, Err(SandboxError::Stopped { .. })), "{tried:?}");
        sandbox.start().await.unwrap();
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn whoever_finds_a_sandbox_again_has_its_network_and_who_had_it_has_not() {
    let sealed = need!(Sealed::new().await);
    let first = sealed.room.create().await;
    let provider = elsewhere(&sealed.room);
    let second = provider.reopen(&sealed.room.spec).await.unwrap().unwrap();
    // Without being started: the first command starts it.
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    assert!(first.verify().await.is_err());
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_later_run_of_the_task_takes_over_a_sealed_sandbox() {
    let sealed = need!(Sealed::new().await);
    let first = sealed.room.create().await;
    first.stop().await.unwrap();
    disown(&sealed.room);
    let second = sealed
        .room
        .provider
        .create(&sealed.room.another_run())
        .await
        .unwrap();
    assert_eq!(second.id(), first.id());
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    second.close().await.unwrap();
}

#[tokio::test]
async fn when_ralph_is_gone_the_sandbox_is_closed() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    let (id, asked) = (sandbox.id().to_owned(), sealed.stand_in.asked());
    drop(sandbox);
    while !sealed.is_closed(&id).await {}
    assert!(sealed.stand_in.asked() <= asked + 2);
    let again = sealed
        .room
        .provider
        .reopen(&sealed.room.spec)
        .await
        .unwrap()
        .unwrap();
    again.start().await.unwrap();
    assert_eq!(sealed.ask(again.as_ref()).await, "hello\n");
    again.close().await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_of_a_seal() {
    // Other tests open files too.
    if !is_alone("seal::nothing_is_left_of_a_seal") {
        return;
    }
    let sealed = need!(Sealed::new().await);
    let mut before = None;
    for _ in 0..3 {
        let sandbox = sealed.room.create().await;
        assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
        let holder = holder(sandbox.as_ref());
        sandbox.close().await.unwrap();
        drop(sandbox);
        assert!(!sealed.room.has(&holder).await);
        assert_eq!(places(sealed.room.dir.path()), 0);
        // What the first one opened for all stays.
        let before = *before.get_or_insert_with(open_files);
        eventually_async(|| open_files() <= before).await;
    }
}

#[tokio::test]
async fn a_holder_that_outlived_its_sandbox_is_pruned() {
    let _held = LEFT_BEHIND.lock().await;
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    let holder = holder(sandbox.as_ref());
    docker(&sealed.room.engine, &["rm", "--force", sandbox.id()]);
    std::fs::remove_dir_all(sealed.room.dir.path().join("sandboxes").join(sandbox.id())).unwrap();
    let provider = elsewhere(&sealed.room);
    let removed = provider.remove(&holder, ralph::sandbox::Removable::Orphans).await;
    assert!(removed.unwrap());
    assert!(!sealed.room.has(&holder).await);
}

#[tokio::test]
async fn the_holder_can_do_nothing_but_hold() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    let holder = holder(sandbox.as_ref());
    let of = |template: &str| sealed.room.inspect(&holder, template);
    assert_eq!(of("{{.HostConfig.CapDrop}}"), "[ALL]");
    assert_eq!(of("{{.HostConfig.CapAdd}}"), "[NET_ADMIN NET_BIND_SERVICE]");
    assert_eq!(of("{{.HostConfig.SecurityOpt}}"), "[no-new-privileges]");
    assert_eq!(of("{{.HostConfig.ReadonlyRootfs}}"), "true");
    assert_eq!(of("{{.HostConfig.NetworkMode}}"), "none");
    assert_eq!(
        of("{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}"),
        "67108864 8"
    );
    assert_eq!(of("{{range .Mounts}}{{.Destination}} {{end}}"), "/run");
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::everything_is_written_down(Policy::record())]
#[case::something_is_denied(Policy::allow_all().denying([Rule::parse("denied.test").unwrap()]))]
#[tokio::test]
async fn a_policy_that_allows_names_it_does_not_list_is_sealed_too(#[case] policy: Policy) {
    let sealed = need!(Sealed::new().await);
    let spec = SandboxSpec {
        network: policy,
        ..sealed.room.spec.clone()
    };
    let sandbox = sealed.room.provider.create(&spec).await.unwrap();
    assert_eq!(prints(sandbox.as_ref(), "ls /sys/class/net").await, "lo\n");
    shell(sandbox.as_ref(), "curl --silent --max-time 5 http://other.test/").await;
    let audit = sealed.audit.lock().unwrap().clone();
    assert!(
        audit
            .iter()
            .any(|record| record.host.as_deref() == Some("other.test")),
        "{audit:?}"
    );
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::the_holder("-net")]
#[case::the_sandbox("")]
#[tokio::test]
async fn whatever_is_killed_in_the_making_leaves_no_sandbox_that_is_open(#[case] suffix: &str) {
    let sealed = need!(Sealed::new().await);
    let name = format!("agent-loop-test-ralph-{}{suffix}", sealed.room.spec.run);
    // A whole making takes about half a second.
    for delay in (0..600).step_by(100).map(Duration::from_millis) {
        let killing = async {
            while !is_there(&name).await {}
            tokio::time::sleep(delay).await;
            outside(&["rm", "--force", &name]).await;
        };
        let (made, ()) = tokio::join!(sealed.room.provider.create(&sealed.room.spec), killing);
        match made {
            Err(_) => assert_eq!(places(sealed.room.dir.path()), 0),
            Ok(sandbox) => {
                let verified = sandbox.verify().await;
                assert!(verified.is_err(), "{verified:?}");
                sandbox.close().await.unwrap();
            }
        }
        assert!(!is_there(&name).await && !is_there(&format!("{name}-net")).await);
    }
}

#[tokio::test]
async fn what_is_seen_from_an_open_sandbox_fails_the_checks() {
    let room = need!(Room::new().await);
    let spec = SandboxSpec {
        network: Policy::allow_all(),
        ..room.spec.clone()
    };
    let sandbox = room.provider.create(&spec).await.unwrap();
    let gateway = room.inspect(sandbox.id(), "{{.NetworkSettings.Gateway}}");
    let heard = TcpListener::bind((gateway.as_str(), 0)).await.unwrap();
    let canary = Canary::Tcp(heard.local_addr().unwrap());
    let beacon = Beacon {
        name: "gateway.ralph.invalid".to_owned(),
        says: "0123".to_owned(),
    };
    let checks = checks(&Policy::deny(), &beacon, &[canary]);
    let canary = checks.last().unwrap();
    let line = format!("/.ralph/guest probe '{}' '{}'", checks[0].probe, canary.probe);
    let printed = prints(sandbox.as_ref(), &line).await;
    let failures: Vec<Option<ProbeFailure>> = [&checks[0], canary]
        .into_iter()
        .zip(printed.lines())
        .map(|(check, line)| check.failure(&Seen::parse(line)))
        .collect();
    assert!(failures.iter().all(Option::is_some), "{failures:?} {printed}");
    heard.accept().await.unwrap();
    sandbox.close().await.unwrap();
}

/// Whether the engine has a container of this name.
async fn is_there(name: &str) -> bool {
    outside(&["inspect", name]).await
}

/// Why a network is not sealed.
fn reason(outcome: Result<(), SandboxError>) -> SealError {
    match outcome {
        Err(SandboxError::Unsealed { source, .. }) => *source,
        other => panic!("{other:?}"),
    }
}

/// Runs this test once more, in a process of its own; whether this is that process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "RALPH_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(ALONE, "1")
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    false
}

/// Waits for something that comes a moment later.
async fn eventually_async(mut holds: impl FnMut() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
