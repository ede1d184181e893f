//! The relayed seal: the connections of a sandbox come over a stream of the engine. With `RALPH_TEST_SEAL=relayed` all other
//! tests run that way too; these are the ones that always do, and the faults that only a relay has.

use std::io::Write;
use std::process::{Command as HostCommand, Output, Stdio};
use std::time::{Duration, Instant};

use ralph::exec::{Command, Discard};
use ralph::network::{Policy, PolicyRule};
use ralph::sandbox::docker::{SealChoice, SealError, provider};
use ralph::sandbox::{Provider, Sandbox};
use tokio::net::TcpListener;

use crate::docker_test::{DockerTest, prints, shell};
use crate::need;
use crate::sealed::{Sealed, eventually_async, holder, outside, reason};
use crate::site::{Site, wait_until_started};
use crate::support::engine::{self, docker};
use crate::support::ralph::{Live, doing, finish, run, script, whole_task};

/// A sealed sandbox whose connections are relayed.
async fn relayed() -> Result<Sealed, String> {
    let mut sealed = Sealed::new().await?;
    sealed.room.provider = Box::new(provider_with(&sealed.room, SealChoice::Relayed));
    Ok(sealed)
}

fn provider_with(room: &DockerTest, seal: SealChoice) -> impl Provider + use<> {
    let mut options = engine::options(room.dir.path());
    options.seal = seal;
    provider(options)
}

/// The process of the relay, as this host numbers it.
fn relay_pid(sealed: &Sealed, sandbox: &dyn Sandbox) -> String {
    let listed = docker(&sealed.room.engine, &["top", &holder(sandbox), "-o", "pid,args"]);
    let line = listed.lines().find(|line| line.ends_with("guest relay"));
    let line = line.unwrap_or_else(|| panic!("{listed}"));
    line.split_whitespace().next().unwrap().to_owned()
}

fn signal(name: &str, pid: &str) {
    let done = HostCommand::new("kill").args(["-s", name, pid]).status();
    assert!(done.unwrap().success());
}

/// Starts another relay in a container, and closes its input after these bytes.
fn run_relay(sealed: &Sealed, container: &str, input: &[u8]) -> Output {
    let mut relay = HostCommand::new("docker")
        .env("DOCKER_HOST", sealed.room.engine.endpoint().to_string())
        .args(["exec", "--interactive", container, "/.ralph/guest", "relay"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have exited already.
    let _ = relay.stdin.take().unwrap().write_all(input);
    relay.wait_with_output().unwrap()
}

/// The most memory that a process ever had at a time, in bytes.
fn memory(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn an_allowed_name_works_and_nothing_else_does() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    let port = sealed.stand_in.port;
    for line in [
        format!("http://denied.test:{port}/"),
        "http://203.0.113.7/".to_owned(),
        "--ipv6 http://[2001:db8::1]/".to_owned(),
    ] {
        let line = format!("curl --silent --fail --max-time 5 {line}");
        assert!(!shell(sandbox.as_ref(), &line).await.success(), "{line}");
    }
    assert_eq!(prints(sandbox.as_ref(), "ls /sys/class/net").await, "lo\n");
    sandbox.verify().await.unwrap();
    // The holder shares no directory of the host, and the agent cannot change the guest.
    let mounts = "{{range .Mounts}}{{.Type}} {{.Destination}} {{.RW}} {{end}}";
    assert_eq!(
        sealed.room.inspect(&holder(sandbox.as_ref()), mounts),
        "volume /.ralph true"
    );
    let touched = shell(sandbox.as_ref(), "touch /.ralph/guest /.ralph/x").await;
    assert!(!touched.success());
    let volume = sealed
        .room
        .inspect(sandbox.id(), "{{range .Mounts}}{{.Name}} {{end}}");
    let volume = volume.trim().to_owned();
    sandbox.close().await.unwrap();
    let left = docker(&sealed.room.engine, &["volume", "ls", "--quiet"]);
    assert!(!left.lines().any(|name| name == volume), "{volume} is left");
}

#[tokio::test]
async fn much_data_passes_in_both_directions_at_once() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    // Eight at a time, each with more than a window of request and response.
    let port = sealed.stand_in.port;
    let line = format!(
        "head -c 3000000 /dev/zero > /tmp/much; for i in 1 2 3 4 5 6 7 8; do \
         curl --silent --show-error --max-time 30 --data-binary @/tmp/much --header Expect: http://allowed.test:{port}/ & done; wait"
    );
    shell(sandbox.as_ref(), &line).await;
    // The server answers without reading everything; what matters is that the relay goes on.
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn megabytes_arrive_as_they_were_sent() {
    let mut sealed = need!(relayed().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut received, mut sent) = stream.split();
        tokio::io::copy(&mut received, &mut sent).await
    });
    let rule = PolicyRule::parse(&format!("allowed.test:{port}")).unwrap();
    sealed.room.spec.network = Policy::allowlist([rule]);
    let sandbox = sealed.room.create().await;
    // The first byte says that it is not HTTP.
    let line = format!(
        "{{ printf '\\000'; head -c 4000000 /dev/urandom; }} > /tmp/much; sha256sum < /tmp/much; \
         exec 3<>/dev/tcp/allowed.test/{port}; cat /tmp/much >&3 & head -c 4000001 <&3 | sha256sum"
    );
    let command = Command::new("bash")
        .args(["-c", &line])
        .timeout(Duration::from_secs(60));
    let exit = sandbox.exec(&command, &mut Discard).await.unwrap();
    let printed = exit.stdout.text();
    let sums: Vec<&str> = printed.lines().collect();
    assert_eq!(sums.len(), 2, "{printed}");
    assert_eq!(sums[0], sums[1]);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_relay_kills_nothing_where_the_first_process_is_not_a_holder() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    let image = sealed
        .room
        .inspect(&holder(sandbox.as_ref()), "{{.Config.Image}}");
    let (engine, name) = (&sealed.room.engine, format!("{}-elsewhere", sandbox.id()));
    let start = ["run", "--detach", "--rm", "--network", "none", "--name", &name];
    let wait = ["--entrypoint", "/.ralph/guest", &image, "boot-id"];
    docker(engine, &[&start[..], &wait].concat());
    docker(engine, &["exec", "--detach", &name, "/.ralph/guest", "boot-id"]);
    // A request without any text.
    let refused = run_relay(&sealed, &name, &[33, 0, 0, 0, 0, 0, 0, 0, 0]);
    let listed = docker(engine, &["top", &name, "-o", "pid,args"]);
    docker(engine, &["rm", "--force", &name]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("beside a holder, but the first process here is \"/.ralph/guest boot-id\""),
        "{said}"
    );
    assert_eq!(listed.matches("boot-id").count(), 2, "{listed}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_relay_without_a_request_does_not_evict_the_one_that_serves() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    let relay = relay_pid(&sealed, sandbox.as_ref());
    let stale = run_relay(&sealed, &holder(sandbox.as_ref()), &[]);
    assert!(stale.status.success(), "{stale:?}");
    assert_eq!(relay_pid(&sealed, sandbox.as_ref()), relay);
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_relay_that_is_killed_leaves_its_sandbox_closed() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    signal("KILL", &relay_pid(&sealed, sandbox.as_ref()));
    let mut tried = Ok(());
    // A moment may pass until it is seen.
    let give_up = Instant::now() + Duration::from_secs(30);
    while tried.is_ok() && Instant::now() < give_up {
        tried = sandbox.exec(&Command::new("true"), &mut Discard).await.map(drop);
    }
    assert!(matches!(reason(&tried), SealError::HolderEnded), "{tried:?}");
    assert!(sealed.is_closed(sandbox.id()).await);
    let again = sealed.again().await;
    assert_eq!(sealed.ask(again.as_ref()).await, "hello\n");
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_second_ralph_evicts_the_first() {
    let sealed = need!(relayed().await);
    let first = sealed.room.create().await;
    let old = relay_pid(&sealed, first.as_ref());
    let provider = provider_with(&sealed.room, SealChoice::Relayed);
    let second = provider.reopen(&sealed.room.spec).await.unwrap().unwrap();
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    assert_ne!(relay_pid(&sealed, second.as_ref()), old);
    assert!(first.verify().await.is_err());
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    second.close().await.unwrap();
}

#[tokio::test]
async fn when_ralph_is_gone_the_relay_ends_and_the_sandbox_is_closed() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    let (id, relay) = (sandbox.id().to_owned(), relay_pid(&sealed, sandbox.as_ref()));
    drop(sandbox);
    let process = format!("/proc/{relay}");
    eventually_async(|| !std::path::Path::new(&process).exists()).await;
    assert!(sealed.is_closed(&id).await);
    let again = sealed.again().await;
    assert_eq!(sealed.ask(again.as_ref()).await, "hello\n");
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_relay_that_stands_still_goes_on_where_it_was() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    let relay = relay_pid(&sealed, sandbox.as_ref());
    let asked = sealed.stand_in.asked();
    signal("STOP", &relay);
    let port = sealed.stand_in.port;
    let ask = format!("curl --silent --max-time 2 http://allowed.test:{port}/");
    assert!(!shell(sandbox.as_ref(), &ask).await.success());
    assert_eq!(sealed.stand_in.asked(), asked);
    signal("CONT", &relay);
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn while_ralph_is_stopped_its_sandbox_reaches_nothing_and_then_goes_on() {
    let site = need!(Site::new().await);
    let neighbour = need!(relayed().await);
    let other = neighbour.room.create().await;
    site.allow("other.example", "127.0.0.1");
    let work = "touch started; until test -e go; do sleep 0.1; done; getent hosts other.example";
    let mut command = site.scripted(&script([doing([run(work)]), whole_task()]));
    let live = Live::start(command.env("RALPH_SANDBOX__DOCKER__SEAL", "relayed"));
    wait_until_started(&site);
    let container = site.containers().pop().unwrap();
    let ask = [
        "exec",
        &container,
        "timeout",
        "4",
        "getent",
        "hosts",
        "other.example",
    ];
    assert!(outside(&ask).await);
    live.signal("STOP");
    assert!(!outside(&ask).await);
    assert_eq!(neighbour.ask(other.as_ref()).await, "hello\n");
    live.signal("CONT");
    let mut answered = false;
    for _ in 0..10 {
        answered = answered || outside(&ask).await;
    }
    assert!(answered);
    assert!(outside(&["exec", &container, "touch", "/workspace/work/go"]).await);
    live.wait().expect(0, &["done: "]);
    site.expect_nothing_left();
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_flood_of_connections_and_readers_that_stall_use_little_memory() {
    let sealed = need!(relayed().await);
    let sandbox = sealed.room.create().await;
    let neighbour = need!(relayed().await);
    let other = neighbour.room.create().await;
    let relay = relay_pid(&sealed, sandbox.as_ref());
    let port = sealed.stand_in.port;
    // Each process opens a hundred connections, sends a request over half of them, and reads nothing. Without the trap it would
    // die by the signal of a write to a connection that the gateway evicted, and open no further ones.
    let one = format!(
        "trap '' PIPE; for i in $(seq 100); do exec {{fd}}<>/dev/tcp/allowed.test/{port} && echo open && \
         {{ [ $((i % 2)) = 0 ] || printf 'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n' >&$fd; }}; \
         done 2>/dev/null; sleep 1"
    );
    let flood = "for p in $(seq 100); do bash -c \"$ONE\" & done | wc -l";
    let command = Command::shell(flood)
        .env("ONE", &one)
        .timeout(Duration::from_secs(120));
    let flooded = sandbox.exec(&command, &mut Discard).await.unwrap();
    // The gateway evicts connections, a few of them before the process inside has noticed that they are open.
    let opened: usize = flooded.stdout.text().trim().parse().unwrap();
    assert!(opened > 9900, "{opened}");
    let used = memory(&relay);
    assert!(used < 96 << 20, "{used} bytes");
    assert_eq!(neighbour.ask(other.as_ref()).await, "hello\n");
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    assert_eq!(relay_pid(&sealed, sandbox.as_ref()), relay);
    sandbox.verify().await.unwrap();
    sandbox.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn sockets_are_handed_over_where_the_kernel_is_shared() {
    let mut sealed = need!(Sealed::new().await);
    for _ in 0..2 {
        // The second time the result is known.
        sealed.room.provider = Box::new(provider_with(&sealed.room, SealChoice::Auto));
        let sandbox = sealed.room.create().await;
        assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
        assert_eq!(
            sealed
                .room
                .inspect(&holder(sandbox.as_ref()), "{{.Path}} {{.Args}}"),
            "/.ralph/guest [hold /run]"
        );
        sandbox.close().await.unwrap();
    }
    let listed = docker(
        &sealed.room.engine,
        &["ps", "--all", "--filter", "name=ralph-kernel-", "--quiet"],
    );
    assert_eq!(listed, "");
}

#[tokio::test]
async fn connections_are_relayed_where_the_kernel_was_started_apart() {
    let sealed = need!(Sealed::new().await);
    let room = &sealed.room;
    // As it is noted once it was seen.
    let info = room.engine.info().await.unwrap();
    let id: String = info.id.chars().filter(char::is_ascii_alphanumeric).collect();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let cache = engine::options(room.dir.path()).cache;
    std::fs::create_dir_all(&cache).unwrap();
    std::fs::write(
        cache.join(format!("kernel-{id}")),
        format!("{} another", boot.trim()),
    )
    .unwrap();
    let provider = provider_with(room, SealChoice::Auto);
    let sandbox = provider.create(&room.spec).await.unwrap();
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    assert_eq!(room.inspect(&holder(sandbox.as_ref()), "{{.Args}}"), "[hold]");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_sandbox_without_a_policy_has_the_guest_of_the_host() {
    let room = need!(DockerTest::new().await);
    let provider = provider_with(&room, SealChoice::Relayed);
    let mut spec = room.spec.clone();
    spec.network = Policy::allow_all();
    let sandbox = provider.create(&spec).await.unwrap();
    assert_eq!(prints(sandbox.as_ref(), "echo here").await, "here\n");
    assert_eq!(sandbox.notices(), Vec::<String>::new());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn it_is_said_how_networks_are_sealed_and_why() {
    let site = need!(Site::new().await);
    for (setting, expected) in [
        ("auto", "handed (the engine shares the kernel of this host)"),
        ("relayed", "relayed (set by sandbox.docker.seal)"),
    ] {
        let ended = |args: &[&str]| finish(site.ralph(args).env("RALPH_SANDBOX__DOCKER__SEAL", setting));
        let env = ended(&["doctor", "env"]);
        env.expect(0, &[]);
        assert!(env.stdout.contains(expected), "{env:?}");
        ended(&["init", "--force", "--type", "docker"]).expect(0, &[expected]);
        let place = need!(Site::new().await);
        place.allow("allowed.test", "192.0.2.1");
        let mut command = place.scripted(&script([whole_task()]));
        let ran = finish(command.env("RALPH_SANDBOX__DOCKER__SEAL", setting));
        let said = format!("ready: network policy: `allowlist` holds; its seal is {expected}");
        ran.expect(0, &[&said]);
    }
}
