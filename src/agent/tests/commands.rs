//! The command lines of the programs.

use rstest::rstest;

use super::*;
use crate::agent::AgentProgram;

/// The command line, then each variable on a line of its own.
fn command_line(program: &dyn AgentProgram, base_url: Option<&str>) -> String {
    let command = program.command(&brief(), &access(base_url, AuthMethod::ApiKey));
    let variables = command
        .env
        .iter()
        .map(|(name, value)| format!("\n{name}={value}"));
    format!("{command}{}", variables.collect::<String>())
}

#[test]
fn claude_is_started_with_safe_settings() {
    assert_eq!(
        command_line(&claude(), Some("http://gateway:1")),
        "claude --print --dangerously-skip-permissions --output-format stream-json --verbose --effort high \
         --model opus --max-budget-usd 1.500000\n\
         ANTHROPIC_API_KEY=sk-0123456789\n\
         ANTHROPIC_BASE_URL=http://gateway:1\n\
         ANTHROPIC_CUSTOM_MODEL_OPTION=opus\n\
         CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\n\
         CLAUDE_CODE_MAX_RETRIES=0\n\
         CLAUDE_CONFIG_DIR=/box/agent\n\
         IS_SANDBOX=1"
    );
}

#[test]
fn claude_uses_the_configured_effort() {
    let claude = Claude {
        model: None,
        effort: Some("low".to_owned()),
    };
    let line = command_line(&claude, None);
    assert!(
        line.contains("--effort low") && !line.contains("--model"),
        "{line}"
    );
}

#[rstest]
#[case(AuthMethod::ApiKey, "ANTHROPIC_API_KEY")]
#[case(AuthMethod::Gateway, "ANTHROPIC_AUTH_TOKEN")]
#[case(AuthMethod::OAuth, "CLAUDE_CODE_OAUTH_TOKEN")]
fn claude_has_a_variable_for_each_kind_of_credential(#[case] auth: AuthMethod, #[case] variable: &str) {
    let command = claude().command(&brief(), &access(None, auth));
    let holding: Vec<&String> = command
        .env
        .iter()
        .filter(|(_, value)| *value == KEY)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(holding, [variable]);
}

#[test]
fn codex_gets_its_model_in_a_configuration_file() {
    assert_eq!(
        command_line(&codex(), Some("http://gateway:1/v1")),
        "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --model gpt-5 -\n\
         CODEX_HOME=/box/agent\n\
         OPENAI_API_KEY=sk-0123456789"
    );
    let files = codex().files(&brief(), &access(Some("http://gateway:1/v1"), AuthMethod::ApiKey));
    assert_eq!(files[0].path, PathBuf::from("/box/agent/config.toml"));
    let config: toml::Table = files[0].text.parse().unwrap();
    let provider = &config["model_providers"]["ralph"];
    assert_eq!(config["model_provider"].as_str(), Some("ralph"));
    assert_eq!(config["model_reasoning_effort"].as_str(), Some("high"));
    assert_eq!(config["analytics"]["enabled"].as_bool(), Some(false));
    assert_eq!(provider["base_url"].as_str(), Some("http://gateway:1/v1"));
    assert_eq!(provider["env_key"].as_str(), Some("OPENAI_API_KEY"));
    assert_eq!(provider["request_max_retries"].as_integer(), Some(0));
}

#[test]
fn an_address_cannot_add_to_the_configuration_of_codex() {
    let hostile = access(Some("http://x\"\n[hooks]\nrun = \"rm"), AuthMethod::ApiKey);
    let config: toml::Table = codex().files(&brief(), &hostile)[0].text.parse().unwrap();
    assert!(!config.contains_key("hooks"), "{config}");
}

#[test]
fn cursor_is_started_with_a_configuration_of_its_own() {
    assert_eq!(
        command_line(&cursor(), None),
        "cursor-agent --print --force --trust --output-format stream-json --model auto \
         'Do what the following text asks for.'\n\
         CURSOR_API_KEY=sk-0123456789\n\
         CURSOR_CONFIG_DIR=/box/agent"
    );
}

#[test]
fn a_custom_program_gets_the_prompt_as_a_file_too() {
    assert_eq!(
        command_line(&custom(), None),
        "aider --message-file /box/agent/prompt.md\nMY_KEY=sk-0123456789"
    );
    let files = custom().files(&brief(), &ModelAccess::default());
    assert_eq!(files[0].text, PROMPT);
}

#[rstest]
#[case::claude(Box::new(claude()))]
#[case::codex(Box::new(codex()))]
#[case::cursor(Box::new(cursor()))]
#[case::custom(Box::new(custom()))]
fn neither_prompt_nor_credential_is_an_argument(#[case] program: Box<dyn AgentProgram>) {
    let access = access(Some("http://gateway:1"), AuthMethod::ApiKey);
    let command = program.command(&brief(), &access);
    assert_eq!(command.stdin.as_deref(), Some(PROMPT.as_bytes()));
    for arg in &command.args {
        assert!(!arg.contains(PROMPT) && !arg.contains(KEY), "{arg}");
    }
    assert!(!format!("{command:?}").contains(KEY));
    assert!(
        program
            .files(&brief(), &access)
            .iter()
            .all(|file| !file.text.contains(KEY))
    );
}
