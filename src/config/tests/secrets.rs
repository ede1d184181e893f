//! Credentials, and what is shown.

use super::*;
use crate::secret::{REDACTED, Redactor};

/// The rows as `ralph config show` prints them, without alignment.
fn text_of(rows: &[show::ConfigRow]) -> String {
    let lines: Vec<String> = rows.iter().map(|row| row.cells().join("  ")).collect();
    lines.join("\n")
}

#[test]
fn credentials_come_from_the_environment_and_from_dotenv() {
    let pem = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\n-----END KEY-----";
    let dotenv =
        format!("GITHUB_APP_PRIVATE_KEY_PEM=\"{pem}\"\nZAI_API_KEY=from-file\nGITHUB_APP_ID=42\nOTHER=x\n");
    let toml = "model_endpoint.api_key_env = 'MY_KEY'\nsandbox.env_passthrough = ['LANG', 'UNSET']\n\
                models.default-cheap.api_key_env = 'TEAM_KEY'";
    let project = Project::new(&[(".env", &dotenv), ("ralph.toml", toml)]).env(&[
        ("ZAI_API_KEY", "from-process"),
        ("MY_KEY", "endpoint-key"),
        ("TEAM_KEY", "profile-key"),
        ("LANG", "C.UTF-8"),
    ]);
    let config = project.load();
    let credential = |name| config.credential(name).map(|secret| secret.expose().to_owned());
    assert_eq!(credential("ZAI_API_KEY").as_deref(), Some("from-process"));
    assert_eq!(credential("GITHUB_APP_PRIVATE_KEY_PEM").as_deref(), Some(pem));
    assert_eq!(credential("GITHUB_APP_ID").as_deref(), Some("42"));
    assert_eq!(config.model_api_key().unwrap().expose(), "endpoint-key");
    assert_eq!(credential("TEAM_KEY").as_deref(), Some("profile-key"));
    for name in ["OPENAI_API_KEY", "OTHER", "LANG"] {
        assert_eq!(credential(name), None, "{name}");
    }
    let passed: Vec<(String, String)> = config.passthrough().into_iter().collect();
    assert_eq!(passed, [("LANG".to_owned(), "C.UTF-8".to_owned())]);

    let redactor = Redactor::new(config.secrets());
    for secret in [
        "from-process",
        "endpoint-key",
        "profile-key",
        pem,
        "MIIEowIBAAKCAQEA",
    ] {
        assert_eq!(redactor.redact(secret), REDACTED);
    }
    assert_eq!(
        redactor.redact("-----BEGIN KEY----- 42 C.UTF-8"),
        "-----BEGIN KEY----- 42 C.UTF-8"
    );
}

#[test]
fn nothing_that_is_shown_holds_a_secret() {
    let config = Project::new(&[(".env", "GITHUB_PAT=CANARY-FILE\n")])
        .env(&[
            ("ANTHROPIC_API_KEY", "CANARY-ENV"),
            ("RALPH_DB_URL", "CANARY-DB"),
            ("GITHUB_APP_ID", "42"),
        ])
        .load();
    let rows = config.rows();
    let json = serde_json::to_string(&rows).unwrap();
    let text = text_of(&rows);
    assert!(!format!("{json}{text}{config:?}").contains("CANARY"));
    let shown = |key: &str| rows.iter().find(|row| row.key == key).unwrap().value.clone();
    assert_eq!(shown("env.GITHUB_PAT"), "***");
    assert_eq!(shown("env.GITHUB_APP_ID"), "42");
}

#[test]
fn show_lists_every_key_with_its_layer_and_source() {
    let rows = Project::new(&[])
        .flag("--type", "sandbox.type", "local")
        .load()
        .rows();
    let text = text_of(&rows);
    let line = |key: &str| {
        text.lines()
            .find(|line| line.starts_with(key))
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("sandbox.type"), "sandbox.type local flag --type");
    assert_eq!(
        line("budget.max_iterations"),
        "budget.max_iterations 30 default built in"
    );
    assert_eq!(line("sandbox.image"), "sandbox.image (not set) default built in");
    assert_eq!(
        line("gutter.ladder"),
        "gutter.ladder [rotate, fallback, doctor, person] default built in"
    );
    let json = serde_json::to_value(&rows).unwrap();
    let kind = json
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == "sandbox.type")
        .unwrap();
    assert_eq!(
        *kind,
        serde_json::json!({"key": "sandbox.type", "value": "local", "layer": "flag", "source": "--type"})
    );
}

#[test]
fn the_environment_of_commands_keeps_the_case_of_names_and_hides_secrets() {
    let toml = "[sandbox.env]\nDATABASE_URL = 'postgres://127.0.0.1/test'\n\
                [sandbox.secrets.NPM_TOKEN]\nhosts = ['npm.example']\n\
                [sandbox.secrets.API_KEY]\nfrom = 'TEAM_API_KEY'\nhosts = ['*.api.example']";
    let config = Project::new(&[("ralph.toml", toml), (".env", "NPM_TOKEN=CANARY-NPM\n")])
        .env(&[
            ("TEAM_API_KEY", "CANARY-TEAM"),
            ("RALPH_SANDBOX__ENV__Mixed_CASE", "kept"),
        ])
        .load();
    let env: Vec<(&str, &str)> = config
        .settings
        .sandbox
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        env,
        [
            ("DATABASE_URL", "postgres://127.0.0.1/test"),
            ("Mixed_CASE", "kept")
        ]
    );
    assert_eq!(config.credential("TEAM_API_KEY").unwrap().expose(), "CANARY-TEAM");
    let redactor = Redactor::new(config.secrets());
    assert_eq!(redactor.redact("CANARY-NPM"), REDACTED);
    assert!(!format!("{}{config:?}", text_of(&config.rows())).contains("CANARY"));
}
