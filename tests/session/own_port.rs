//! Probes of a guest in a network namespace whose every address is its own, as in a sealed sandbox.

use std::process::Command;

use crate::need;
use crate::support::{guest, skip};

/// Sockets get one of two ports, so that many of them get the port that the probe tries.
const ENTER: &str = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && \
                     echo '40000 40001' > /proc/sys/net/ipv4/ip_local_port_range && \
                     for i in $(seq 20); do \"$0\" probe \"$1\"; done";

fn probe(probe: &str) -> Result<String, String> {
    for program in ["unshare", "ip"] {
        skip::program(program)?;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = guest::install(dir.path())?;
    let namespace = ["--map-root-user", "--net"];
    let possible = Command::new("unshare").args(namespace).arg("true").output();
    if !possible.unwrap().status.success() {
        return Err("no network namespace can be made".to_owned());
    }
    let output = Command::new("unshare")
        .args(namespace)
        .args(["sh", "-ec", ENTER])
        .arg(program)
        .arg(probe)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_datagram_to_an_address_of_the_sandbox_does_not_reach_its_own_socket() {
    let seen = need!(probe("send 198.51.100.7:40000"));
    assert_eq!(seen, "refused\n".repeat(20));
}

#[test]
fn a_connection_to_an_address_of_the_sandbox_does_not_reach_its_own_socket() {
    for port in [40000, 40001] {
        let seen = need!(probe(&format!("connect 198.51.100.7:{port}")));
        assert_eq!(seen, "refused\n".repeat(20), "{port}");
    }
}
