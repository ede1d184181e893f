//! `cursor`: Cursor's agent, by `cursor-agent --print`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::exec::Command;
use crate::model::{AuthMethod, CURSOR};
use crate::usage::Tokens;

use super::transcript::{ReportedAction, TokenCounts, events, tool_call, transcript_line};
use super::{
    AgentBrief, AgentImage, AgentProgram, AgentRecord, KeyVariable, ModelAccess, ProgramAgent, TranscriptEnd,
    TranscriptSummary,
};

/// The prompt argument. The program appends standard input to it.
const PREFACE: &str = "Do what the following text asks for.";

/// The record of `cursor`.
pub static CURSOR_AGENT: AgentRecord = AgentRecord {
    name: "cursor",
    summary: "The `cursor-agent` program.",
    program: Some("cursor-agent"),
    install: Some("curl https://cursor.com/install -fsS | bash"),
    image: AgentImage {
        name: "cursor",
        dockerfile: include_str!("../../templates/cursor/Dockerfile.j2"),
    },
    service: Some(&CURSOR),
    base_path: "",
    accepts_base_url: false,
    key_variables: &[KeyVariable {
        name: "CURSOR_API_KEY",
        auth: AuthMethod::ApiKey,
    }],
    settings_files: &[".cursor", ".cursorrules", "AGENTS.md"],
    reports_cost: false,
    is_built_in: false,
    create: |options, access| {
        let cursor = Cursor { model: options.model };
        Ok(Arc::new(ProgramAgent::new(cursor, access)))
    },
};

/// The agent `cursor`. It always calls Cursor's own service, whatever the base URL is.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The value of `--model`; `None` uses the program's default.
    pub model: Option<String>,
}

impl AgentProgram for Cursor {
    fn name(&self) -> &'static str {
        CURSOR_AGENT.name
    }

    fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn check_command(&self) -> Command {
        Command::new("cursor-agent").arg("--version")
    }

    fn command(&self, brief: &AgentBrief, access: &ModelAccess) -> Command {
        let mut command = Command::new("cursor-agent")
            .args(["--print", "--force", "--trust"])
            .args(["--output-format", "stream-json"])
            .stdin(brief.text.clone())
            .env("CURSOR_CONFIG_DIR", brief.home.display().to_string());
        if let Some(model) = &self.model {
            command = command.args(["--model", model]);
        }
        access.add_credential(command.arg(PREFACE), &CURSOR_AGENT)
    }

    fn parse_transcript(&self, printed: &str) -> TranscriptSummary {
        let mut summary = TranscriptSummary::default();
        for event in events(printed) {
            if let CursorEvent::Result(result) = event {
                summary.usage.tokens = result.usage.map(Tokens::from);
                summary.end = if result.is_error {
                    TranscriptEnd::Failed {
                        error: result.result.clone(),
                    }
                } else {
                    TranscriptEnd::Finished
                };
                summary.text = result.result;
            }
        }
        summary
    }

    fn reported_actions(&self, line: &str) -> Option<Vec<ReportedAction>> {
        let event = transcript_line(line)?;
        let started = event["type"] == "tool_call" && event["subtype"] == "started";
        // An object with the name of the tool as its only key.
        let calls = event["tool_call"].as_object().filter(|_| started);
        let call = |(name, call): (&String, &Value)| ReportedAction::Performed {
            what: tool_call(&name.as_str().into(), &call["args"]),
        };
        Some(calls.into_iter().flatten().map(call).collect())
    }
}

/// A line of the transcript. Only the fields that are used.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CursorEvent {
    Result(CursorResult),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CursorResult {
    is_error: bool,
    #[serde(default)]
    result: String,
    usage: Option<TokenCounts>,
}
