//! `ralph token` and `ralph gateway check`, as a user types them.

use std::io::Write;
use std::process::Stdio;

use rstest::rstest;
use serde_json::{Value, json};

use crate::need;
use crate::support::direct_server::{self, DirectServer, Flavour, Said};
use crate::support::json_shape;
use crate::support::model_service::{Answer, KEY, ModelService, USED};
use crate::support::ralph::{Ended, Place, finish};
use crate::support::skip;

/// Runs `ralph` with this on its standard input.
fn feed(place: &Place, args: &[&str], input: &str) -> Ended {
    let mut command = place.ralph(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Ended::new(output.status, &output.stdout, &output.stderr)
}

const CLAUDE: [&str; 4] = ["--agent", "claude", "--auth", "api-key"];

#[test]
fn a_key_is_stored_checked_and_given_back() {
    let place = Place::new();
    let with = |command: &[&'static str]| [command, &CLAUDE].concat();
    place.run(&with(&["token", "check"])).expect(
        1,
        &[
            "the Anthropic API key is not stored",
            "ralph token store --agent claude --auth api-key",
        ],
    );
    let stored = feed(&place, &with(&["store-token"]), &format!("{KEY}\n"));
    stored.expect(
        0,
        &["Stored the Anthropic API key in a file that only you can read."],
    );
    let checked = place.run(&with(&["check-token"]));
    assert_eq!(
        checked.expect(0, &[]).stdout,
        "the Anthropic API key is in a file that only you can read: it has no expiry date\n"
    );
    assert_eq!(
        place.run(&with(&["get-token"])).expect(0, &[]).stdout,
        format!("{KEY}\n")
    );
    for ended in [stored, checked] {
        assert!(!format!("{ended:?}").contains("CANARY"), "{ended:?}");
    }
}

#[rstest]
#[case::new("", 0, "364 days left")]
#[case::renewable(
    r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-A","refreshToken":"sk-ant-ort01-R","expiresAt":0}}"#,
    0,
    "it is renewed automatically"
)]
#[case::expired(
    r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-A","expiresAt":0}}"#,
    1,
    "the Claude login has expired"
)]
fn a_login_says_how_long_it_lasts(#[case] file: &str, #[case] code: i32, #[case] said: &str) {
    let place = Place::new();
    let input = if file.is_empty() {
        "sk-ant-oat01-CANARY"
    } else {
        file
    };
    feed(&place, &["token", "store", "--agent", "claude"], input).expect(0, &[]);
    let checked = place.run(&["token", "check", "--agent", "claude"]);
    checked.expect(code, &[]);
    assert!(
        format!("{}{}", checked.stdout, checked.stderr).contains(said),
        "{checked:?}"
    );
}

#[rstest]
#[case::wrong_kind(&["--agent", "claude"], "sk-proj-CANARY", "looks like the OpenAI API key")]
#[case::nothing(&["--auth", "gateway"], "", "the input is empty")]
#[case::chatgpt(&["--agent", "codex", "--auth", "oauth"], "x", "the ChatGPT login is for another service")]
#[case::chatgpt_file(&["--agent", "codex"], r#"{"OPENAI_API_KEY": null, "tokens": {"access_token": "CANARY"}}"#, "the gateway does not support ChatGPT logins")]
#[case::no_such_pair(&["--agent", "cursor", "--auth", "oauth"], "x", "the agent `cursor` cannot authenticate with `oauth`")]
#[case::no_such_auth(&["--auth", "password"], "x", "unknown authentication method `password`")]
fn an_invalid_credential_is_not_stored(#[case] args: &[&str], #[case] input: &str, #[case] said: &str) {
    let place = Place::new();
    let ended = feed(&place, &[&["token", "store"], args].concat(), input);
    ended.expect(2, &[said]);
    assert!(!ended.stderr.contains("CANARY"), "{ended:?}");
    assert!(!place.home().join("credentials").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_is_asked_before_a_key_is_stored() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let place = Place::new();
    let url = service.base_url();
    let store = [&["token", "store", "--verify", "--base-url", &url][..], &CLAUDE].concat();
    feed(&place, &store, "sk-ant-api03-CANARY-wrong").expect(1, &["refused the credential (HTTP 401)"]);
    assert!(!place.home().join("credentials").exists());
    feed(&place, &store, KEY).expect(0, &["Stored"]);

    let check = |url: &str| place.run(&[&["gateway", "check", "--base-url", url][..], &CLAUDE].concat());
    let passed = check(&url);
    let lines = "PASS the gateway answers\nPASS the service accepts the stored credential\n";
    assert_eq!(passed.expect(0, &[]).stdout, lines);

    let other = ModelService::scripted("another-key-entirely", |_| Answer::Words(USED)).await;
    let failed = check(&other.base_url());
    failed.expect(
        1,
        &[
            "requests with the Anthropic API key would not be served",
            "hint: store a valid credential: `ralph token store --agent claude --auth api-key`",
        ],
    );
    assert!(failed.stdout.contains(
        "FAIL the service accepts the stored credential: HTTP 401: ralph: api.anthropic.com: the service refused the stored credential"
    ));
    assert!(!format!("{passed:?}{failed:?}").contains("CANARY"));

    let unused_address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let failed = check(&format!("http://{unused_address}"));
    let hint = format!("hint: start the service, or correct its address http://{unused_address}");
    failed.expect(1, &["warning: a call cannot be forwarded: ", &hint]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_only_not_list_models_is_stored_and_a_forbidden_one_is_not() {
    let server = DirectServer::saying(Flavour::OpenAi, Said::Text(String::new())).await;
    let place = Place::new();
    let url = server.base_url();
    let store = [
        "token",
        "store",
        "--verify",
        "--auth",
        "gateway",
        "--base-url",
        &url,
    ];
    let key = direct_server::KEY;
    server.refuse_check(403, json!({"message": format!("the team of {key} is blocked")}));
    let refused = feed(&place, &store, key);
    refused.expect(
        1,
        &["refused the credential (HTTP 403): the team of [redacted] is blocked"],
    );
    assert!(!place.home().join("credentials").exists());
    server.refuse_check(
        403,
        json!({"message": "Virtual key is not allowed to call this route. Tried to call route: /v1/models"}),
    );
    feed(&place, &store, key).expect(0, &["Stored"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_environment_is_used_where_none_is_stored() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let place = Place::new();
    let url = service.base_url();
    let mut command =
        place.ralph(&[&["gateway", "check", "--json", "--base-url", &url][..], &CLAUDE].concat());
    let ended = finish(command.env("ANTHROPIC_API_KEY", KEY));
    let checks: Value = serde_json::from_str(&ended.expect(0, &[]).stdout).unwrap();
    assert_eq!(checks.as_array().unwrap().len(), 2);
    let checked = json_shape::check(&["gateway", "check", "--json"], &ended);
    assert_eq!(checked, Some("gateway-check"));
}

/// A fake `claude` shows a token on a terminal as the real one does, in colour and broken over two lines.
#[test]
fn a_setup_token_is_picked_up_from_the_terminal() {
    need!(skip::program("script"));
    let place = Place::new();
    let token = format!("sk-ant-oat01-{}", "CANARY-012".repeat(9) + "01234");
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let (first, second) = token.split_at(80);
    let claude = format!(
        "#!/bin/sh\n[ \"$1\" = setup-token ] && [ -t 0 ] && [ -t 1 ] || exit 3\nprintf '\\033[1mYour token:\\033[0m\\n\\n\\033[33m{first}\\n{second}\\033[0m\\n\\nKeep it.\\n'\n"
    );
    std::fs::write(bin.join("claude"), claude).unwrap();
    std::fs::set_permissions(
        bin.join("claude"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let ralph = format!("{} token store --agent claude", env!("CARGO_BIN_EXE_ralph"));
    let mut command = place.ralph(&[]);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-q", "-e", "-c", &ralph, "/dev/null"]).env_clear();
    terminal
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PATH", path);
    terminal.current_dir(place.repo()).stdin(Stdio::null());
    command.stdin(Stdio::null());
    let ended = finish(&mut terminal);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let kept = place.run(&["token", "get", "--agent", "claude"]);
    assert_eq!(kept.expect(0, &[]).stdout.trim(), token);
}
