//! The explicit proxy, which variables name to the programs inside.

use ralph::exec::{Command, Discard};
use ralph::gateway::Phantom;
use ralph::gateway::audit::AuditProtocol;
use ralph::sandbox::Egress;
use rstest::rstest;

use crate::docker_test::{prints, shell};
use crate::need;
use crate::sealed::Sealed;
use crate::site::Site;
use crate::support::ralph::{doing, finish, run, script, whole_task};

#[tokio::test]
async fn programs_with_proxy_variables_use_the_proxy_and_reach_the_same_names() {
    let mut sealed = need!(Sealed::new().await);
    sealed.room.spec.egress = Egress {
        phantom: Some(Phantom::random().unwrap()),
        proxy_variables: true,
        ..sealed.room.spec.egress
    };
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    let line = format!("curl --silent http://allowed.test:{}/", sealed.stand_in.port);
    let witnessed = sandbox
        .exec_trusted(&Command::shell(&line), &mut Discard)
        .await
        .unwrap();
    assert_eq!(witnessed.stdout.text(), "hello\n");
    let denied = "curl --silent --include http://denied.test/";
    let answer = prints(sandbox.as_ref(), denied).await;
    assert!(answer.contains("x-ralph-denied: host not in policy"), "{answer}");
    // What is inside is not asked of the proxy.
    let inside = "curl --silent --show-error http://localhost:9/";
    let refused = shell(sandbox.as_ref(), inside).await;
    assert!(
        refused.stderr.text().contains("localhost port 9"),
        "{}",
        refused.stderr.text()
    );
    sandbox.close().await.unwrap();
    let audit = sealed.audit.lock().unwrap();
    assert_eq!(audit.len(), 3, "{audit:?}");
    assert!(
        audit.iter().all(|record| record.protocol == AuditProtocol::Proxy),
        "{audit:?}"
    );
}

#[rstest]
#[case::asked_to("proxy_variables = true\n", "proxy")]
#[case::not_asked_to("", "dns")]
#[tokio::test]
async fn a_run_sets_proxy_variables_for_its_commands_when_it_is_asked_to(
    #[case] setting: &str,
    #[case] protocol: &str,
) {
    let site = need!(Site::new().await);
    let file = site.place.repo().join("ralph.toml");
    let section = "[sandbox.network]\n";
    let config = std::fs::read_to_string(file).unwrap();
    site.place.write(
        "ralph.toml",
        &config.replace(section, &format!("{section}{setting}")),
    );
    let asks = doing([run("curl --silent http://denied.test/ || true")]);
    finish(&mut site.scripted(&script([asks, whole_task()]))).expect(0, &["blocked denied.test "]);
    let audit = std::fs::read_to_string(site.place.run_dir().join("network.jsonl")).unwrap();
    let expected = format!("\"protocol\":\"{protocol}\"");
    assert!(audit.lines().all(|line| line.contains(&expected)), "{audit}");
    site.expect_nothing_left();
}
