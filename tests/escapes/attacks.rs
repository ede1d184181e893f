//! Attacks with the tools of every image, in addition to those of `ralph selftest --escapes`.

use rstest::rstest;

use crate::docker_test::{DockerTest, prints, shell};
use crate::elsewhere::{Echoes, Elsewhere};
use crate::need;
use crate::world::{ALLOWED, World};

const CURL: &str = "curl --silent --show-error --fail --insecure --max-time 10";

/// Without the seal, each would reach a listener that the host reaches.
#[rstest]
#[case::dotted("http://{address}/")]
#[case::decimal("http://{decimal}/")]
#[case::hexadecimal("http://{hex}/")]
#[case::octal("http://{octal}/")]
#[case::short("http://{short}/")]
#[case::another_port("http://{address}:8080/")]
#[case::tls("https://{address}/")]
#[case::mapped("http://[::ffff:{address}]/")]
#[tokio::test]
async fn an_ip_address_is_unreachable_in_all_notations(#[case] url: &str) {
    let elsewhere = need!(Elsewhere::new().await);
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    let url = elsewhere.spelled(url);
    elsewhere.check_receives_from_host().await;
    let overridden =
        elsewhere.spelled("env http_proxy=http://{address}:8080 https_proxy=http://{address}:8080 ");
    for variables in [
        "",
        "env -u http_proxy ",
        "env no_proxy='*' NO_PROXY='*' ",
        &overridden,
    ] {
        let line = format!("{variables}{CURL} '{url}'");
        assert!(!shell(sandbox.as_ref(), &line).await.success(), "{line}");
    }
    assert_eq!(elsewhere.received(), 0);
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::a_datagram("echo hi > /dev/udp/{address}/53")]
#[case::quic("echo hi > /dev/udp/{address}/443; echo hi > /dev/udp/{address}/443")]
#[case::a_connection("echo hi > /dev/tcp/{address}/8080")]
#[case::the_allowed_name_elsewhere(
    "exec 3<>/dev/tcp/{address}/80; printf 'GET / HTTP/1.1\\r\\nHost: denied.test\\r\\n\\r\\n' >&3; grep -q hello <&3"
)]
#[tokio::test]
async fn no_other_protocol_gets_out(#[case] line: &str) {
    let elsewhere = need!(Elsewhere::new().await);
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    elsewhere.check_receives_from_host().await;
    let line = format!("bash -c \"{}\"", elsewhere.spelled(line));
    let _ = shell(sandbox.as_ref(), &line).await;
    assert_eq!(elsewhere.received(), 0, "{line}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn no_echo_request_gets_out() {
    let elsewhere = need!(Elsewhere::new().await);
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    let echoes = need!(Echoes::at(&elsewhere));
    echoes.check_receives_from_host();
    let line = elsewhere.spelled("/.ralph/guest probe 'echo {address}'");
    let seen = prints(sandbox.as_ref(), &line).await;
    // Every address is local to the sandbox, so it answers itself, or is not permitted to ask.
    assert!(["answered\n", "forbidden\n"].contains(&seen.as_str()), "{seen}");
    assert_eq!(echoes.received(), 0);
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::another_name_in_the_hello("--connect-to denied.test:443:{allowed}:443 https://denied.test/hello")]
#[case::another_host_in_the_request("--header 'Host: denied.test' http://{allowed}/hello")]
#[case::another_name_through_a_tunnel(
    "--proxytunnel --proxy {proxy} --connect-to denied.test:443:{allowed}:443 https://denied.test/hello"
)]
#[case::a_tunnel_without_the_phantom("--proxytunnel --proxy http://127.0.0.1:3128 https://{allowed}/hello")]
#[case::a_tunnel_in_a_tunnel("--preproxy {proxy} --proxy {proxy} https://denied.test/hello")]
#[case::a_name_that_ends_alike("http://not{allowed}/hello")]
#[case::a_name_that_begins_alike("http://{allowed}.denied.test/hello")]
#[case::a_name_below("http://below.{allowed}/hello")]
#[tokio::test]
async fn an_allowed_name_does_not_open_another_one(#[case] arguments: &str) {
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    let arguments = arguments
        .replace("{allowed}", ALLOWED)
        .replace("{proxy}", &world.proxy());
    // Positive control: another spelling of the allowed name works.
    let control = format!("{CURL} https://{}./hello", ALLOWED.to_uppercase());
    assert_eq!(prints(sandbox.as_ref(), &control).await, "hello\n");
    let line = format!("{CURL} {arguments}");
    assert!(!shell(sandbox.as_ref(), &line).await.success(), "{line}");
    assert_eq!(world.asked(), 1, "{line}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn one_sandbox_does_not_reach_another() {
    let room = need!(DockerTest::new().await);
    let (one, other) = (room.create().await, room.create_another().await);
    let serve = "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => \"0.0.0.0\", LocalPort => 8080, \
        Listen => 5, ReuseAddr => 1) or die; open(F, \">ready\"); close F; while ($c = $s->accept) { print F; print $c \"inside\\n\"; close $c }' \
        > /dev/null 2>&1 & until [ -e ready ]; do sleep 0.1; done";
    prints(one.as_ref(), serve).await;
    let ask = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080 && head -n 1 <&3'";
    assert_eq!(prints(one.as_ref(), ask).await, "inside\n");
    assert!(!shell(other.as_ref(), ask).await.success());
    one.close().await.unwrap();
    other.close().await.unwrap();
}
