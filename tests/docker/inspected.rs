//! TLS that is opened: the programs of a sandbox trust it, and are judged by what they ask for.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ralph::exec::{Command, Discard};
use ralph::gateway::audit::AuditTally;
use ralph::gateway::{HeaderSecret, TrustedRoots};
use ralph::network::{HostPattern, Policy, PolicyRule};
use ralph::sandbox::Sandbox;
use ralph::sandbox::docker::provider;
use ralph::secret::Secret;
use rstest::rstest;

use crate::docker_test::{prints, shell};
use crate::life::disown;
use crate::need;
use crate::remote::{at_address, forward};
use crate::sealed::{AllAt, Sealed, StandIn, certified, holder, own_listener};
use crate::support::derived::Derived;

const CURL: &str = "curl --silent --show-error --max-time 10";
const OWN: &str = "/workspace/own.pem";
/// Prints the certificate that programs are made to trust.
const AUTHORITY: &str = "cat /.ralph/trust/authority.pem";

/// A sandbox in which `inspected.test` is inspected and `plain.test` is not. Both are at one server.
struct Inspected {
    sealed: Sealed,
    server: StandIn,
    /// By which the server's certificate is trusted.
    own: String,
}

impl Inspected {
    async fn new() -> Result<Self, String> {
        let mut sealed = Sealed::new().await?;
        let listener = own_listener(443).await?;
        let IpAddr::V4(address) = listener.local_addr().unwrap().ip() else {
            unreachable!()
        };
        let (acceptor, own) = certified(&["inspected.test", "plain.test"]);
        let rules = ["GET inspected.test/open/*", "plain.test"].map(|line| PolicyRule::parse(line).unwrap());
        sealed.room.spec.network =
            Policy::allowlist(rules).inspecting([HostPattern::parse("inspected.test").unwrap()]);
        sealed.room.spec.egress.resolver = Arc::new(AllAt(address));
        sealed.room.spec.egress.roots = TrustedRoots::Pem(own.clone().into());
        Ok(Self {
            sealed,
            server: StandIn::at(listener, Some(acceptor)),
            own,
        })
    }

    /// One whose commands find what the server is trusted by at [`OWN`].
    async fn create(&self) -> Box<dyn Sandbox> {
        let sandbox = self.sealed.room.create().await;
        let own = self.own.as_bytes();
        sandbox.files().write(Path::new(OWN), own, 0o644).await.unwrap();
        sandbox
    }
}

#[tokio::test]
async fn a_program_without_options_trusts_an_inspected_name_and_evidence_does_too() {
    let inspected = need!(Inspected::new().await);
    let sandbox = inspected.create().await;
    let line = format!("{CURL} https://inspected.test/open/x");
    assert_eq!(prints(sandbox.as_ref(), &line).await, "hello\n");
    let witnessed = sandbox
        .exec_trusted(&Command::shell(&line), &mut Discard)
        .await
        .unwrap();
    assert_eq!(witnessed.stdout.text(), "hello\n", "{}", witnessed.stderr.text());
    assert_eq!(inspected.server.asked(), 2);
    sandbox.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_on_another_host_gets_the_certificates_and_no_directory() {
    let mut inspected = need!(Inspected::new().await);
    let room = &inspected.sealed.room;
    let options = at_address(room, &forward(&room.engine, None).await);
    inspected.sealed.room.provider = Box::new(provider(options));
    let sandbox = inspected.create().await;
    let line = format!("{CURL} https://inspected.test/open/x");
    assert_eq!(prints(sandbox.as_ref(), &line).await, "hello\n");
    let closed = format!("{CURL} --include https://inspected.test/closed");
    assert!(
        prints(sandbox.as_ref(), &closed)
            .await
            .starts_with("HTTP/1.1 403 ")
    );
    let kinds = "{{range .Mounts}}{{.Type}} {{end}}";
    for container in [sandbox.id().to_owned(), holder(sandbox.as_ref())] {
        let mounts = inspected.sealed.room.inspect(&container, kinds);
        assert!(!mounts.contains("bind"), "{container}: {mounts}");
    }
    assert_eq!(inspected.server.asked(), 1);
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::another_path(
    "https://inspected.test/closed",
    "method or path not in policy",
    "blocked GET inspected.test/closed 1x: to allow, add \"GET inspected.test/closed\" to sandbox.network.allowed"
)]
#[case::another_method(
    "--request POST https://inspected.test/open/x?y=z",
    "method or path not in policy",
    "blocked POST inspected.test/open/x 1x: to allow, add \"POST inspected.test/open/x\" to sandbox.network.allowed"
)]
#[case::another_host(
    "--header 'Host: plain.test' https://inspected.test/open/x",
    "host mismatch: the connection was allowed for inspected.test:443, the request names plain.test:443",
    "blocked inspected.test 1x: no policy line can allow it; see network.jsonl for the reason"
)]
#[tokio::test]
async fn what_is_asked_for_inside_tls_is_judged(
    #[case] arguments: &str,
    #[case] denied: &str,
    #[case] recorded: &str,
) {
    let inspected = need!(Inspected::new().await);
    let sandbox = inspected.create().await;
    let answer = prints(sandbox.as_ref(), &format!("{CURL} --include {arguments}")).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains(&format!("x-ralph-denied: {denied}")), "{answer}");
    assert_eq!(inspected.server.asked(), 0);
    sandbox.close().await.unwrap();
    let tally: AuditTally = inspected.sealed.audit.lock().unwrap().iter().collect();
    let blocked: Vec<String> = tally.blocked().map(|asked| asked.to_string()).collect();
    assert_eq!(blocked, [recorded]);
}

#[tokio::test]
async fn only_what_is_inspected_shows_another_certificate() {
    let inspected = need!(Inspected::new().await);
    let sandbox = inspected.create().await;
    let with_own = |url: &str| format!("{CURL} --cacert {OWN} {url}");
    let plain = with_own("https://plain.test/");
    assert_eq!(prints(sandbox.as_ref(), &plain).await, "hello\n");
    let opened = with_own("https://inspected.test/open/x");
    assert!(!shell(sandbox.as_ref(), &opened).await.success());
    // Whom the image does not trust is not trusted for it.
    let untrusted = format!("{CURL} https://plain.test/");
    assert!(!shell(sandbox.as_ref(), &untrusted).await.success());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn the_agent_cannot_change_whom_its_programs_trust() {
    let inspected = need!(Inspected::new().await);
    let sandbox = inspected.create().await;
    for line in [
        "echo > /.ralph/trust/bundle.pem",
        "touch /.ralph/trust/more",
        "rm /.ralph/trust/bundle.pem",
    ] {
        assert!(!shell(sandbox.as_ref(), line).await.success(), "{line}");
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn taking_over_a_sandbox_replaces_its_authority() {
    let inspected = need!(Inspected::new().await);
    let room = &inspected.sealed.room;
    let first = inspected.create().await;
    let mut authorities = vec![prints(first.as_ref(), AUTHORITY).await];
    let resumed = room.provider.reopen(&room.spec).await.unwrap().unwrap();
    authorities.push(prints(resumed.as_ref(), AUTHORITY).await);
    let line = format!("{CURL} https://inspected.test/open/x");
    assert_eq!(prints(resumed.as_ref(), &line).await, "hello\n");
    resumed.stop().await.unwrap();
    disown(room);
    let later = room.provider.create(&room.another_run()).await.unwrap();
    assert_eq!(later.id(), first.id());
    authorities.push(prints(later.as_ref(), AUTHORITY).await);
    assert_eq!(prints(later.as_ref(), &line).await, "hello\n");
    authorities.dedup();
    assert_eq!(authorities.len(), 3);
    later.close().await.unwrap();
}

#[rstest]
#[case::where_debian_has_it("etc/ssl/certs/ca-certificates.crt", "")]
#[case::where_a_variable_says("opt/list.pem", "SSL_CERT_FILE=/opt/list.pem")]
#[tokio::test]
async fn whom_the_image_trusts_stays_trusted(#[case] path: &str, #[case] variable: &str) {
    let mut inspected = need!(Inspected::new().await);
    let room = &mut inspected.sealed.room;
    let base = room.spec.image.clone().unwrap();
    let image = Derived::of(&room.engine, &base, &[(path, &inspected.own)], variable);
    room.spec.image = Some(image.name.clone());
    let sandbox = inspected.create().await;
    for url in ["https://plain.test/", "https://inspected.test/open/x"] {
        assert_eq!(
            prints(sandbox.as_ref(), &format!("{CURL} {url}")).await,
            "hello\n"
        );
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_command_sends_a_secret_that_its_sandbox_does_not_have() {
    let mut inspected = need!(Inspected::new().await);
    let hosts = vec![HostPattern::parse("inspected.test").unwrap()];
    let secret = HeaderSecret::new("KEY", Secret::new("real-value"), hosts).unwrap();
    let spec = &mut inspected.sealed.room.spec;
    spec.env.insert("KEY".to_owned(), secret.placeholder().to_owned());
    spec.egress.secrets = vec![secret];
    let sandbox = inspected.create().await;
    let ask = format!("{CURL} --header \"Authorization: Bearer $KEY\"");
    let line = format!("env; {ask} https://inspected.test/open/x");
    let printed = prints(sandbox.as_ref(), &line).await;
    assert!(
        printed.contains("KEY=ralph-KEY-placeholder") && !printed.contains("real-value"),
        "{printed}"
    );
    assert!(printed.ends_with("hello\n"), "{printed}");
    let by_evidence = sandbox
        .exec_trusted(&Command::shell(&line), &mut Discard)
        .await
        .unwrap();
    assert!(
        by_evidence.stdout.text().ends_with("hello\n"),
        "{}",
        by_evidence.stderr.text()
    );
    let received = inspected.server.received();
    assert_eq!(
        received.matches("Authorization: Bearer real-value\r\n").count(),
        2,
        "{received}"
    );
    // TLS that is not inspected hides the placeholder, which is worth nothing there.
    let elsewhere = format!("{ask} --cacert {OWN} https://plain.test/");
    assert_eq!(prints(sandbox.as_ref(), &elsewhere).await, "hello\n");
    let received = inspected.server.received();
    assert_eq!(received.matches("real-value").count(), 2, "{received}");
    assert!(
        received.contains("Bearer ralph-KEY-placeholder\r\n"),
        "{received}"
    );
    sandbox.close().await.unwrap();
}
