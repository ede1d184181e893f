//! `opencode`: by `opencode run`, with a model of OpenAI's API or of a gateway with the same API.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::exec::Command;
use crate::model::{AuthMethod, OPENAI};
use crate::usage::Tokens;

use super::transcript::{ReportedAction, events, tool_call, transcript_line};
use super::{
    AgentBrief, AgentFile, AgentImage, AgentProgram, AgentRecord, KeyVariable, ModelAccess, ProgramAgent,
    TranscriptEnd, TranscriptSummary,
};

const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
const DEFAULT_MODEL: &str = "gpt-5";
/// The variable for the key. Its configuration names it too.
const KEY: &str = "OPENAI_API_KEY";

/// The record of `opencode`.
pub static OPENCODE: AgentRecord = AgentRecord {
    name: "opencode",
    summary: "The `opencode` program.",
    program: Some("opencode"),
    install: Some("npm install --global opencode-ai"),
    image: AgentImage {
        name: "opencode",
        dockerfile: include_str!("../../templates/opencode/Dockerfile.j2"),
    },
    service: Some(&OPENAI),
    base_path: "/v1",
    accepts_base_url: true,
    key_variables: &[KeyVariable {
        name: KEY,
        auth: AuthMethod::ApiKey,
    }],
    settings_files: &[".opencode", "AGENTS.md", "opencode.json", "opencode.jsonc"],
    reports_cost: false,
    is_built_in: false,
    create: |options, access| {
        let opencode = OpenCode {
            model: options.model,
            effort: options.effort,
        };
        Ok(Arc::new(ProgramAgent::new(opencode, access)))
    },
};

/// The agent `opencode`.
#[derive(Clone, Debug, Default)]
pub struct OpenCode {
    /// The name of the model at its endpoint; `None` means `gpt-5`.
    pub model: Option<String>,
    /// The reasoning effort; `None` uses the default of the model.
    pub effort: Option<String>,
}

impl OpenCode {
    fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(DEFAULT_MODEL)
    }

    /// Its configuration file: a provider with the base URL, which knows one model.
    fn config(&self, access: &ModelAccess) -> String {
        let mut model = json!({"name": self.model()});
        if let Some(effort) = &self.effort {
            model["options"] = json!({"reasoningEffort": effort});
        }
        let base_url = access.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible",
            "name": "ralph",
            "options": {"baseURL": base_url, "apiKey": format!("{{env:{KEY}}}")},
            "models": {self.model(): model},
        });
        let config = json!({
            "autoupdate": false,
            "share": "disabled",
            "snapshot": false,
            "permission": "allow",
            // Titles of sessions would cost a call each.
            "agent": {"title": {"disable": true}},
            "enabled_providers": ["ralph"],
            "provider": {"ralph": provider},
        });
        config.to_string()
    }
}

impl AgentProgram for OpenCode {
    fn name(&self) -> &'static str {
        OPENCODE.name
    }

    fn model_name(&self) -> Option<&str> {
        Some(self.model())
    }

    fn files(&self, brief: &AgentBrief, access: &ModelAccess) -> Vec<AgentFile> {
        vec![AgentFile {
            path: brief.home.join("opencode.json"),
            text: self.config(access),
        }]
    }

    fn command(&self, brief: &AgentBrief, access: &ModelAccess) -> Command {
        let mut command = Command::new("opencode")
            .args(["run", "--format", "json"])
            .args(["--model".to_owned(), format!("ralph/{}", self.model())])
            .stdin(brief.text.clone())
            .env(
                "OPENCODE_CONFIG",
                brief.home.join("opencode.json").display().to_string(),
            );
        for (variable, directory) in [
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
        ] {
            command = command.env(variable, brief.home.join(directory).display().to_string());
        }
        for variable in [
            "OPENCODE_DISABLE_AUTOUPDATE",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS",
            "OPENCODE_DISABLE_LSP_DOWNLOAD",
            "OPENCODE_DISABLE_MODELS_FETCH",
        ] {
            command = command.env(variable, "1");
        }
        access.add_credential(command, &OPENCODE)
    }

    fn parse_transcript(&self, printed: &str) -> TranscriptSummary {
        let mut summary = TranscriptSummary::default();
        for event in events(printed) {
            match event {
                OpenCodeEvent::Text { part } => summary.text = part.text,
                OpenCodeEvent::StepFinish { part } => {
                    let tokens = summary.usage.tokens.unwrap_or_default() + part.tokens.into();
                    summary.usage.tokens = Some(tokens);
                    // A step ends with `tool-calls` if another one follows.
                    if part.reason == "stop" {
                        summary.end = TranscriptEnd::Finished;
                    }
                }
                OpenCodeEvent::Error { error } => summary.end = error.end(),
                OpenCodeEvent::Other => {}
            }
        }
        summary
    }

    fn reported_actions(&self, line: &str) -> Option<Vec<ReportedAction>> {
        let event = transcript_line(line)?;
        let part = &event["part"];
        let call = (event["type"] == "tool_use").then(|| ReportedAction::Performed {
            what: tool_call(&part["tool"], &part["state"]["input"]),
        });
        Some(call.into_iter().collect())
    }
}

/// A line of the transcript. Only the fields that are used.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OpenCodeEvent {
    Text {
        part: OpenCodeText,
    },
    StepFinish {
        part: OpenCodeStep,
    },
    Error {
        error: OpenCodeError,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct OpenCodeText {
    text: String,
}

#[derive(Deserialize)]
struct OpenCodeStep {
    reason: String,
    tokens: OpenCodeTokens,
}

#[derive(Deserialize)]
struct OpenCodeTokens {
    input: u64,
    output: u64,
    reasoning: u64,
    cache: OpenCodeCacheTokens,
}

#[derive(Deserialize)]
struct OpenCodeCacheTokens {
    read: u64,
    write: u64,
}

impl From<OpenCodeTokens> for Tokens {
    fn from(tokens: OpenCodeTokens) -> Self {
        Self {
            input: tokens
                .input
                .saturating_add(tokens.cache.read)
                .saturating_add(tokens.cache.write),
            output: tokens.output.saturating_add(tokens.reasoning),
        }
    }
}

#[derive(Deserialize)]
struct OpenCodeError {
    name: String,
    data: Option<OpenCodeErrorData>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenCodeErrorData {
    message: Option<String>,
    status_code: Option<u16>,
}

impl OpenCodeError {
    fn end(self) -> TranscriptEnd {
        let data = self.data.unwrap_or_default();
        let error = data.message.unwrap_or(self.name);
        match data.status_code {
            Some(status) => TranscriptEnd::from_status(status, error, None),
            None => TranscriptEnd::Failed { error },
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::agent::AgentCredential;
    use crate::secret::Secret;

    macro_rules! recorded {
        ($name:literal) => {
            include_str!(concat!(
                "../../tests/fixtures/agents/opencode-",
                $name,
                ".jsonl"
            ))
        };
    }

    #[test]
    fn the_command_line_and_the_configuration_have_no_prompt_and_no_key() {
        let brief = AgentBrief {
            text: "Do it.".to_owned(),
            iteration: 1,
            home: "/box/agent".into(),
            cost_left: None,
        };
        let access = ModelAccess {
            base_url: Some("http://gateway:1/v1".to_owned()),
            credential: Some(AgentCredential {
                auth: AuthMethod::Gateway,
                value: Secret::new("phantom"),
            }),
            ..ModelAccess::default()
        };
        let opencode = OpenCode {
            model: Some("m".to_owned()),
            effort: Some("high".to_owned()),
        };
        let command = opencode.command(&brief, &access);
        assert_eq!(command.to_string(), "opencode run --format json --model ralph/m");
        assert_eq!(command.stdin.as_deref(), Some(&b"Do it."[..]));
        assert_eq!(command.env[KEY], "phantom");
        let config = &opencode.files(&brief, &access)[0];
        assert_eq!(command.env["OPENCODE_CONFIG"], config.path.display().to_string());
        assert!(!config.text.contains("phantom"));
        let config: Value = serde_json::from_str(&config.text).unwrap();
        let provider = &config["provider"]["ralph"];
        assert_eq!(provider["options"]["baseURL"], "http://gateway:1/v1");
        assert_eq!(provider["models"]["m"]["options"]["reasoningEffort"], "high");
    }

    #[test]
    fn the_last_message_and_the_usage_are_read() {
        let summary = OpenCode::default().parse_transcript(recorded!("ok"));
        assert_eq!(summary.end, TranscriptEnd::Finished);
        assert_eq!(summary.text, "Done: hi from the fake model.");
        let tokens = Tokens {
            input: 200,
            output: 40,
        };
        assert_eq!(summary.usage.tokens, Some(tokens));
    }

    #[rstest]
    #[case(recorded!("401"), "the credential was refused: ")]
    #[case(recorded!("429"), "the model is rate limited: ")]
    fn a_failed_call_is_classified(#[case] printed: &str, #[case] expected: &str) {
        match OpenCode::default().parse_transcript(printed).end {
            TranscriptEnd::ModelFailed(failure) => {
                assert!(failure.to_string().starts_with(expected), "{failure}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_interrupted_transcript_has_no_result() {
        let whole = recorded!("ok");
        let cut = &whole[..whole.rfind("{\"type\":\"text\"").unwrap()];
        assert_eq!(
            OpenCode::default().parse_transcript(cut).end,
            TranscriptEnd::Missing
        );
    }
}
