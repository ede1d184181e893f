//! Errors, hangs, broken connections and unknown fields of Daytona.

use std::sync::Arc;
use std::time::Duration;

use ralph::exec::{Command, Discard, ExitStatus};
use ralph::network::HostName;
use ralph::sandbox::daytona::{DaytonaOptions, DaytonaProvider, DaytonaSecret};
use ralph::sandbox::{Provider, SandboxErrorKind};
use ralph::secret::Secret;
use rstest::rstest;

use crate::daytona::scene;
use crate::support::daytona::{Daytona, Fault, KEY};
use crate::{full_message, need, spec};

/// The read timeout for calls that hang.
const SOON: Duration = Duration::from_secs(5);
/// A key that must not be in any message.
const MODEL_KEY: &str = "sk-real-0123456789abcdef";

#[rstest]
#[case::no_key(None, "DAYTONA_API_KEY", SandboxErrorKind::Unavailable)]
#[case::a_wrong_key(
    Some("dtn_wrong_wrong"),
    "401: Unauthorized (set DAYTONA_API_KEY",
    SandboxErrorKind::Failed
)]
#[tokio::test]
async fn a_missing_or_wrong_key_is_reported(
    #[case] key: Option<&str>,
    #[case] expected: &str,
    #[case] kind: SandboxErrorKind,
) {
    let scene = need!(scene().await);
    let options = DaytonaOptions {
        key: key.map(Secret::new),
        ..scene.daytona.options()
    };
    let provider = Arc::new(DaytonaProvider::new(options));
    let error = provider.check().await.unwrap_err();
    assert!(
        full_message(&error).contains(expected),
        "{}",
        full_message(&error)
    );
    assert_eq!(error.kind(), kind);
    assert!(!full_message(&error).contains("dtn_"));
}

/// A fake Daytona with fast sandboxes, and a provider that stores a credential there.
async fn quick(fault: &Fault) -> Result<(Daytona, Arc<dyn Provider>), String> {
    let daytona = Daytona::in_namespaces().await?;
    let provider = Arc::new(DaytonaProvider::new(DaytonaOptions {
        read_timeout: if *fault == Fault::Hangs {
            SOON
        } else {
            DaytonaOptions::READ_TIMEOUT
        },
        secrets: vec![DaytonaSecret {
            variable: "MODEL_KEY".to_owned(),
            value: Secret::new(MODEL_KEY),
            hosts: vec![HostName::parse("api.example.org").unwrap()],
        }],
        ..daytona.options()
    }));
    Ok((daytona, provider))
}

/// Enough faults for all retries.
fn always(fault: &Fault) -> Vec<Fault> {
    vec![fault.clone(); 4]
}

#[rstest]
#[case::status_401(Fault::Status(401), ["401", "set DAYTONA_API_KEY"], SandboxErrorKind::Failed)]
#[case::status_403(Fault::Status(403), ["403", "give the key the permissions"], SandboxErrorKind::Failed)]
#[case::status_404(Fault::Status(404), ["404", "check that DAYTONA_API_URL"], SandboxErrorKind::Failed)]
#[case::status_409(Fault::Status(409), ["409", "ralph sandbox ls"], SandboxErrorKind::Failed)]
#[case::status_429(Fault::Wait(0), ["429", "limit is reached"], SandboxErrorKind::Unreachable)]
#[case::status_500(Fault::Status(500), ["500", "wait a while"], SandboxErrorKind::Unreachable)]
#[case::nonsense(Fault::Nonsense, ["cannot read the response", "check that DAYTONA_API_URL"], SandboxErrorKind::Failed)]
#[case::it_hangs(Fault::Hangs, ["cannot reach Daytona", "check the network"], SandboxErrorKind::Unreachable)]
#[tokio::test]
async fn a_failed_creation_leaves_nothing_and_has_a_hint(
    #[case] fault: Fault,
    #[case] said: [&str; 2],
    #[case] kind: SandboxErrorKind,
    #[values("POST /api/sandbox", "/process/execute")] call: &str,
) {
    let (daytona, provider) = need!(quick(&fault).await);
    daytona.fail(call, always(&fault));
    let Err(error) = provider.create(&spec("any:v1")).await else {
        panic!("it was made")
    };
    let message = full_message(&error);
    assert!(said.iter().all(|text| message.contains(text)), "{message}");
    assert!(
        !message.contains(KEY) && !message.contains(MODEL_KEY),
        "{message}"
    );
    assert_eq!(error.kind(), kind, "{message}");
    assert_eq!(daytona.sandboxes(), Vec::<String>::new());
    assert_eq!(daytona.vault(), Vec::<String>::new());
}

#[rstest]
#[case::not_allowed(Fault::Status(403), "give the key the permissions")]
#[case::out_of_order(Fault::Status(500), "wait a while")]
#[tokio::test]
async fn without_its_credential_in_the_vault_there_is_no_sandbox(#[case] fault: Fault, #[case] hint: &str) {
    let (daytona, provider) = need!(quick(&fault).await);
    daytona.fail("POST /api/secret", always(&fault));
    let Err(error) = provider.create(&spec("any:v1")).await else {
        panic!("it was made")
    };
    assert!(full_message(&error).contains(hint), "{}", full_message(&error));
    assert_eq!(daytona.sandboxes(), Vec::<String>::new());
}

#[rstest]
#[case::status_401(Fault::Status(401), SandboxErrorKind::Failed)]
#[case::status_403(Fault::Status(403), SandboxErrorKind::Failed)]
#[case::status_404(Fault::Status(404), SandboxErrorKind::Failed)]
#[case::status_409(Fault::Status(409), SandboxErrorKind::Failed)]
#[case::status_429(Fault::Wait(0), SandboxErrorKind::Unreachable)]
#[case::status_500(Fault::Status(500), SandboxErrorKind::Unreachable)]
#[case::it_hangs(Fault::Hangs, SandboxErrorKind::Unreachable)]
#[tokio::test]
async fn an_unreachable_sandbox_loses_nothing(#[case] fault: Fault, #[case] kind: SandboxErrorKind) {
    let (daytona, provider) = need!(quick(&fault).await);
    let sandbox = provider.create(&spec("any:v1")).await.unwrap();
    sandbox
        .files()
        .write("work/kept".as_ref(), b"kept", 0o644)
        .await
        .unwrap();
    daytona.fail("/process/execute", always(&fault));
    let error = sandbox.files().read("work/kept".as_ref(), 10).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{}", full_message(&error));
    assert!(error.hint().is_some());
    daytona.forget_faults();
    assert_eq!(
        sandbox.files().read("work/kept".as_ref(), 10).await.unwrap(),
        b"kept"
    );
    sandbox.close().await.unwrap();
    assert!(daytona.sandboxes().is_empty() && daytona.vault().is_empty());
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let scene = need!(scene().await);
    for call in [
        "POST /api/snapshots",
        "GET /api/snapshots",
        "POST /api/sandbox",
        "/process/execute",
    ] {
        scene.daytona.fail(call, [Fault::NewField]);
    }
    scene.daytona.fail("GET /api/sandbox", vec![Fault::NewField; 3]);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_broken_websocket_costs_one_command_and_no_file() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let command = Command::shell("echo kept > kept; touch started; sleep 100").cwd("work");
    let mut output = Discard;
    let (exit, ()) = tokio::join!(sandbox.exec(&command, &mut output), async {
        while scene.daytona.script(sandbox.id(), "ls $HOME/ralph/work").await != "kept\nstarted\n" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        scene.daytona.break_terminals();
    });
    assert_eq!(exit.unwrap().status, ExitStatus::Signal(9));
    let notices = sandbox.notices();
    assert!(
        notices.iter().any(|notice| notice.contains("reopening it")),
        "{notices:?}"
    );
    let after = sandbox
        .exec(&Command::shell("cat work/kept"), &mut Discard)
        .await
        .unwrap();
    assert_eq!(after.stdout.text(), "kept\n");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_removed_sandbox_is_not_reported_as_unreachable() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    scene.daytona.lose(sandbox.id()).await;
    let error = sandbox.files().read("work/file".as_ref(), 10).await.unwrap_err();
    assert!(error.to_string().ends_with("is gone"), "{error:?}");
    assert!(full_message(&error).contains("creates a new sandbox from the last checkpoint"));
    sandbox.close().await.unwrap();
}
