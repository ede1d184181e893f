//! The sealed network: what an allowed name does, and what nothing else does.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph::gateway::audit::{AuditRecord, AuditVerdict};
use ralph::network::probe::{Beacon, Canary, ProbeFailure, ProbeResult, checks};
use ralph::network::{Policy, PolicyRule};
use ralph::sandbox::SandboxSpec;
use ralph::sandbox::docker::{SealChoice, SealError};
use rstest::rstest;
use tokio::net::TcpListener;

use crate::docker_test::{DockerTest, prints, shell};
use crate::need;
use crate::sealed::{AllAt, Sealed, StandIn, acceptor, expected_rules, holder, is_alone, reason, saved};
use crate::site::Site;
use crate::support::engine;
use crate::support::ralph::{doing, finish, run, script, whole_task};

#[tokio::test]
async fn an_allowed_name_works_on_the_ports_of_the_web_and_no_other_rides_along() {
    let mut sealed = need!(Sealed::new().await);
    // An address of this test's own, whose ports nothing else uses.
    let [a, b] = std::process::id().to_be_bytes()[2..] else {
        unreachable!()
    };
    let address = Ipv4Addr::new(127, 77, a, b);
    let (http, tls) = (
        TcpListener::bind((address, 80)).await,
        TcpListener::bind((address, 443)).await,
    );
    let http = StandIn::at(need!(http.map_err(|error| format!("port 80: {error}"))), None);
    let tls = StandIn::at(
        need!(tls.map_err(|error| format!("port 443: {error}"))),
        Some(acceptor()),
    );
    sealed.room.spec.network = Policy::allowlist([PolicyRule::parse("allowed.test").unwrap()]);
    sealed.room.spec.egress.resolver = Arc::new(AllAt(address));
    let sandbox = sealed.room.create().await;
    let curl = "curl --silent --show-error --insecure --max-time 10";
    for url in ["http://allowed.test/", "https://allowed.test/"] {
        assert_eq!(
            prints(sandbox.as_ref(), &format!("{curl} {url}")).await,
            "hello\n"
        );
    }
    let (plain, secret) = (http.asked(), tls.asked());
    // Another name to the address of the allowed one: by the hello, and by the request.
    for line in [
        "--connect-to denied.test:443:allowed.test:443 https://denied.test/",
        "--fail --header 'Host: denied.test' http://allowed.test/",
    ] {
        assert!(
            !shell(sandbox.as_ref(), &format!("{curl} {line}")).await.success(),
            "{line}"
        );
    }
    assert_eq!((http.asked(), tls.asked()), (plain, secret));
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_run_reports_what_its_sandbox_asked_for_and_did_not_get() {
    let site = need!(Site::new().await);
    let asks = doing([run("curl --silent http://denied.test/ || true")]);
    finish(&mut site.scripted(&script([asks, whole_task()]))).expect(
        0,
        &[
            "blocked denied.test ",
            "to allow, add \"denied.test\" to sandbox.network.allowed",
        ],
    );
    site.expect_nothing_left();
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
    assert_eq!(reached.unwrap().verdict, AuditVerdict::Allowed);
    // Nothing of what was probed.
    assert!(
        audit
            .iter()
            .all(|record| record.host.as_deref() == Some("allowed.test")),
        "{audit:?}"
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
    let mut fastest = Duration::MAX;
    // The host may be busy for a while; what is dropped would be waited for each time.
    for _ in 0..5 {
        let started = Instant::now();
        let exit = shell(sandbox.as_ref(), line).await;
        fastest = fastest.min(started.elapsed());
        assert!(!exit.success());
        let stderr = exit.stderr.text();
        assert!(said.split('|').any(|said| stderr.contains(said)), "{stderr}");
        if fastest < Duration::from_secs(2) {
            break;
        }
    }
    assert!(fastest < Duration::from_secs(2), "{fastest:?}");
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
        assert_eq!(saved(&program, &pid), expected_rules());
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_removed_rule_is_seen_before_the_next_iteration() {
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
    let verified = sandbox.verify().await;
    let seen = reason(&verified);
    assert!(
        matches!(seen, SealError::Different(state) if state.contains(":OUTPUT ACCEPT")),
        "{seen:?}"
    );
    assert!(sealed.is_closed(sandbox.id()).await);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn an_added_way_out_is_seen_before_the_next_iteration() {
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
    let verified = sandbox.verify().await;
    let seen = reason(&verified);
    assert!(
        matches!(seen, SealError::Different(state) if state.contains("up way-out")),
        "{seen:?}"
    );
    sandbox.close().await.unwrap();
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
    let (limits, mounts) = match engine::seal() {
        SealChoice::Relayed => ("268435456 8", "/.ralph"),
        _ => ("67108864 8", "/run"),
    };
    assert_eq!(of("{{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}"), limits);
    assert_eq!(of("{{range .Mounts}}{{.Destination}} {{end}}"), mounts);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_gateway_listens_where_its_sandbox_is_and_nowhere_on_the_host() {
    // Other tests listen too.
    if !is_alone("seal::a_gateway_listens_where_its_sandbox_is_and_nowhere_on_the_host") {
        return;
    }
    let sealed = need!(Sealed::new().await);
    let before = listeners_here();
    assert!(before > 0, "the server of the allowed name listens");
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    assert_eq!(listeners_here(), before);
    sandbox.close().await.unwrap();
}

/// How many sockets of this process listen in the host's own network.
fn listeners_here() -> usize {
    const LISTENS: &str = "0A";
    let open: BTreeSet<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
        .filter_map(|target| {
            Some(
                target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    let tables = ["tcp", "tcp6", "udp", "udp6"]
        .map(|table| (table, std::fs::read_to_string(format!("/proc/net/{table}"))));
    let waits = |table: &str, line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let own = words.get(9).is_some_and(|inode| open.contains(*inode));
        own && (table.starts_with("udp") || words[3] == LISTENS)
    };
    tables
        .iter()
        .map(|(table, text)| {
            text.as_deref()
                .unwrap_or_default()
                .lines()
                .filter(|line| waits(table, line))
                .count()
        })
        .sum()
}

#[rstest]
#[case::everything_is_written_down(Policy::record())]
#[case::something_is_denied(Policy::allow_all().denying([PolicyRule::parse("denied.test").unwrap()]))]
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
    // No server is needed: the request is recorded all the same.
    let ssh = "curl --silent --max-time 5 telnet://other.test:22 < /dev/null";
    shell(sandbox.as_ref(), ssh).await;
    sandbox.close().await.unwrap();
    let audit = sealed.audit.lock().unwrap().clone();
    for port in [80, 22] {
        let asked =
            |record: &AuditRecord| record.host.as_deref() == Some("other.test") && record.port == Some(port);
        assert!(audit.iter().any(asked), "{audit:?}");
    }
}

#[tokio::test]
async fn what_is_seen_from_an_open_sandbox_fails_the_checks() {
    let room = need!(DockerTest::new().await);
    let spec = SandboxSpec {
        network: Policy::allow_all(),
        ..room.spec.clone()
    };
    let sandbox = room.provider.create(&spec).await.unwrap();
    let gateway = room.inspect(sandbox.id(), "{{.NetworkSettings.Gateway}}");
    let listener = TcpListener::bind((gateway.as_str(), 0)).await.unwrap();
    let canary = Canary::Tcp(listener.local_addr().unwrap());
    let beacon = Beacon {
        name: "gateway.ralph.invalid".to_owned(),
        nonce: "0123".to_owned(),
    };
    let checks = checks(&Policy::deny(), &beacon, &[canary]);
    let canary = checks.last().unwrap();
    let line = format!("/.ralph/guest probe '{}' '{}'", checks[0].probe, canary.probe);
    let printed = prints(sandbox.as_ref(), &line).await;
    let failures: Vec<Option<ProbeFailure>> = [&checks[0], canary]
        .into_iter()
        .zip(printed.lines())
        .map(|(check, line)| check.failure(&ProbeResult::parse(line)))
        .collect();
    assert!(failures.iter().all(Option::is_some), "{failures:?} {printed}");
    listener.accept().await.unwrap();
    sandbox.close().await.unwrap();
}
