//! Stored credentials: a login that is renewed amid a run, one that is refused, one that cannot be served.

use std::fs;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use ralph::credential::{Credential, CredentialKind, CredentialLocation, RefreshToken, Vault};
use ralph::secret::Secret;
use rstest::rstest;

use crate::bench::{Bench, KEY, Program, Within, one_session, tick, whole_task};
use crate::need;
use crate::support::model_server::{RENEWED_REFRESH, Teller, Turn};
use crate::support::ralph::finish;
use crate::traces::files_with;

/// Keeps a credential where ralph does.
async fn keep(bench: &Bench, kind: CredentialKind, credential: Credential) {
    let vault = Vault::in_files(bench.place.home().join("credentials"));
    vault
        .store(kind, &credential, CredentialLocation::File)
        .await
        .unwrap();
}

/// What the login is renewed to was unknown when the run began: the model repeats it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_renewed_amid_a_run_is_kept_out_of_all_that_it_writes() {
    let mut session = whole_task();
    let said = format!("The tokens are {KEY} and {RENEWED_REFRESH}.");
    session[1] = Turn::run(format!("echo '{said}'; {}; {}", tick("M1.1"), tick("M1.2")));
    session[2] = Turn::say(&said);
    let bench = need!(Bench::new(Program::Claude, vec![session]).await);
    let login = Credential {
        token: Secret::new("sk-ant-oat01-OLD-0123456789"),
        expires: Some(Timestamp::now() + SignedDuration::from_mins(1)),
        refresh: Some(RefreshToken {
            token: Secret::new("sk-ant-ort01-OLD-0123456789"),
            scopes: vec!["user:inference".to_owned()],
        }),
    };
    keep(&bench, ralph::model::ANTHROPIC_LOGIN, login).await;
    let ended = finish(
        bench
            .ralph(&["run", "-vv"])
            .env("RALPH_TOKEN_SERVER", bench.server.token_url())
            .env_remove(Program::Claude.key_variable()),
    );
    ended.expect(0, &["The tokens are [redacted] and [redacted].", "done: "]);
    assert_eq!(bench.server.renewals(), 1);
    for token in [KEY, RENEWED_REFRESH] {
        assert!(!format!("{ended:?}").contains(token), "{ended:?}");
        let elsewhere = |file: &PathBuf| !file.starts_with(bench.place.home().join("credentials"));
        let found: Vec<PathBuf> = files_with(&bench.place.home(), token)
            .into_iter()
            .filter(elsewhere)
            .collect();
        assert_eq!(found, Vec::<PathBuf>::new());
    }
    let request = fs::read_to_string(ended.stdout.trim_end().lines().last().unwrap()).unwrap();
    assert!(request.contains("b.txt says hello"), "{request}");
}

#[rstest]
#[case::claude(Program::Claude, ralph::model::ANTHROPIC_KEY)]
#[case::codex(Program::Codex, ralph::model::OPENAI_KEY)]
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_credential_that_is_refused_is_reported_until_there_is_another(
    #[case] program: Program,
    #[case] kind: CredentialKind,
) {
    let bench = need!(Bench::within(Within::Sealed, program, Teller::of(one_session())).await);
    keep(
        &bench,
        kind,
        Credential::new(Secret::new("sk-expired-0123456789")),
    )
    .await;
    let refused = finish(bench.ralph(&["run"]).env_remove(program.key_variable()));
    let what_to_do = format!("hint: {}, then `ralph resume`", kind.store_hint());
    refused.expect(
        1,
        &[
            "ralph: not ready to begin: ",
            "refused it (HTTP 401)",
            &what_to_do,
        ],
    );
    assert_eq!(bench.server.asked().len(), 0);
    keep(&bench, kind, Credential::new(Secret::new(KEY))).await;
    finish(bench.ralph(&["resume"]).env_remove(program.key_variable())).expect(0, &["done: "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_chatgpt_is_refused_before_there_is_a_run() {
    let bench = need!(Bench::new(Program::Codex, one_session()).await);
    bench.run(&["--set", "agent.auth=oauth"]).expect_refused(&[
        "the ChatGPT login is for another service",
        "hint: set agent.auth = \"api-key\", and store the OpenAI API key with `ralph token store`",
    ]);
    assert!(bench.place.runs().is_empty());
}
