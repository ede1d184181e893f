//! What works with an allowed name.

use std::time::Duration;

use ralph::network::{Policy, PolicyRule};
use rstest::rstest;

use crate::docker_test::{prints, shell};
use crate::need;
use crate::world::{ALLOWED, COMMON, World};

const CURL: &str = "curl --silent --show-error --max-time 20 --cacert /workspace/ca.pem";

/// Through the transparent gateway, and through the explicit proxy.
#[rstest]
#[case::http("http", "")]
#[case::tls("https", "--http1.1")]
#[case::http_2("https", "--http2")]
#[tokio::test]
async fn an_allowed_name_works_with_and_without_proxy_variables(#[case] scheme: &str, #[case] option: &str) {
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    let url = format!("{scheme}://{ALLOWED}");
    let curl = format!("{CURL} {option}");
    let proxied = format!("http_proxy={0} https_proxy={0} {curl}", world.proxy());
    for curl in [&curl, &proxied] {
        let print = |path: &str| format!("{curl} {url}{path}");
        assert_eq!(prints(sandbox.as_ref(), &print("/hello")).await, "hello\n");
        let down = format!("{} | wc -c", print("/big"));
        assert_eq!(prints(sandbox.as_ref(), &down).await.trim(), "33554432");
        let up = format!(
            "head -c 33554432 /dev/zero | {} --data-binary @-",
            print("/upload")
        );
        assert_eq!(prints(sandbox.as_ref(), &up).await, "33554432");
        // The first line comes before the second one was written.
        let stream = format!(
            "{} --no-buffer | while read line; do echo $line $(date +%s%N); done",
            print("/stream")
        );
        let times = prints(sandbox.as_ref(), &stream).await;
        let times: Vec<u64> = times
            .lines()
            .map(|line| line.split(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(
            Duration::from_nanos(times[1] - times[0]) > Duration::from_millis(200),
            "{times:?}"
        );
    }
    if option == "--http2" {
        let version = format!("{curl} --output /dev/null --write-out '%{{http_version}}' {url}/hello");
        assert_eq!(prints(sandbox.as_ref(), &version).await, "2");
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn five_common_domains_work_together_and_a_sixth_does_not() {
    let mut world = need!(World::new().await);
    world.room.spec.network = Policy::allowlist(COMMON.map(|name| PolicyRule::parse(name).unwrap()));
    let sandbox = world.create().await;
    for scheme in ["http", "https"] {
        let names = COMMON.join(" ");
        let all =
            format!("for name in {names}; do {CURL} {scheme}://$name/name > $name & done; wait; cat {names}");
        let printed = prints(sandbox.as_ref(), &all).await;
        assert_eq!(printed.lines().collect::<Vec<_>>(), COMMON);
        let sixth = shell(sandbox.as_ref(), &format!("{CURL} {scheme}://{ALLOWED}/name")).await;
        assert!(
            sixth.stderr.text().contains("Could not resolve host"),
            "{}",
            sixth.stderr.text()
        );
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn fifty_requests_at_once_are_all_answered() {
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    let all = format!("for i in $(seq 50); do {CURL} https://{ALLOWED}/hello & done; wait");
    let printed = prints(sandbox.as_ref(), &all).await;
    assert_eq!(printed, "hello\n".repeat(50));
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_redirect_to_a_denied_name_is_not_followed_to_it() {
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    let line = format!("{CURL} --location https://{ALLOWED}/redirect");
    let exit = shell(sandbox.as_ref(), &line).await;
    assert!(
        exit.stderr.text().contains("Could not resolve host: denied.test"),
        "{}",
        exit.stderr.text()
    );
    // The redirect was received, so the client could have followed it.
    assert_eq!(world.asked(), 1);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn git_clones_over_tls_with_and_without_proxy_variables() {
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    for (dir, variables) in [
        ("plain", String::new()),
        ("proxied", format!("https_proxy={} ", world.proxy())),
    ] {
        let clone = format!(
            "{variables}GIT_SSL_CAINFO=/workspace/ca.pem git clone --quiet https://{ALLOWED}/repo.git {dir} && cat {dir}/file"
        );
        assert_eq!(prints(sandbox.as_ref(), &clone).await, "from the repository\n");
    }
    let denied = shell(sandbox.as_ref(), "git clone https://denied.test/repo.git denied").await;
    assert!(!denied.success());
    sandbox.close().await.unwrap();
}
