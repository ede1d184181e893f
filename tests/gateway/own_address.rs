//! The host's own address, a public one, in a network that the test makes for itself.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex};

use ralph::gateway::{AddressGuard, ListenerProtocol};
use ralph::network::Policy;
use rstest::rstest;
use tokio::net::TcpListener;

use crate::need;
use crate::support::skip::{self, program};
use crate::world::{OK, World, answer_heads, say, send_and_read_until};

/// Set in the process inside the namespace.
const INSIDE: &str = "INSIDE_A_NETWORK_OF_ITS_OWN";

#[rstest]
#[case::ipv4("93.184.216.34")]
#[case::ipv6("2606:2800:220:1::34")]
fn the_hosts_own_public_address_is_refused(#[case] address: &str) {
    if std::env::var_os(INSIDE).is_none() {
        return run_inside();
    }
    // Without it an IPv6 address cannot be used before duplicate address detection ends.
    let options: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
    for args in [
        &["link", "set", "lo", "up"][..],
        &[&["address", "add", address, "dev", "lo"], options].concat(),
    ] {
        assert!(
            Command::new("ip").args(args).status().unwrap().success(),
            "{args:?}"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(check(address.parse().unwrap()));
}

/// Runs this one test again, in a network namespace with nothing but loopback.
fn run_inside() {
    for name in ["unshare", "ip"] {
        need!(program(name));
    }
    let namespace = ["--map-root-user", "--net"];
    if !Command::new("unshare")
        .args(namespace)
        .arg("true")
        .status()
        .unwrap()
        .success()
    {
        return skip::record("no network namespace can be made");
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new("unshare")
        .args(namespace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn check(address: IpAddr) {
    let listener = TcpListener::bind(SocketAddr::new(address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // The kernel adds the route of a new IPv6 address a little later.
    while tokio::net::TcpStream::connect((address, port)).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let remembered = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_heads(stream, remembered.clone(), OK));
        }
    });
    let request = format!("GET / HTTP/1.1\r\nHost: own.example:{port}\r\n\r\n");
    let world = |guard| {
        let world = World::with(Policy::allow_all(), |setup| setup.guard = guard);
        world.names.set("own.example", &[&address.to_string()]);
        world
    };
    let refusing = world(AddressGuard::default());
    let mut client = refusing.enter(ListenerProtocol::Http { port }).await;
    let answer = String::from_utf8(say(&mut client, &request).await).unwrap();
    assert!(answer.contains("an address of the host"), "{answer}");
    assert!(seen.lock().unwrap().is_empty());
    // It is there, and only the guard keeps it away.
    let opening = world(AddressGuard::dangerously_opening([address
        .to_string()
        .parse()
        .unwrap()]));
    let mut client = opening.enter(ListenerProtocol::Http { port }).await;
    send_and_read_until(&mut client, &request, "ok").await;
}
