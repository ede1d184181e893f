//! What a person can ask of a run. Command line, API and dashboard only leave such values in its inbox.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{first_bytes, one_line};

use super::ReviewRound;

/// How much of a text the summary of an intervention shows, in bytes.
const SUMMARY_BYTES: usize = 80;

/// What a person can ask of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Intervention {
    /// End now and drop the unfinished iteration.
    Stop,
    /// Finish this iteration, then pause.
    Pause,
    /// End this iteration with what it has and start another.
    Rotate,
    /// Add a note to the next prompt.
    Note {
        /// The note.
        text: String,
    },
    /// Ask the doctor after this iteration.
    Doctor,
    /// Add a sign to the guardrails.
    Sign(Sign),
    /// Keep what a person appended to a run file by hand.
    Append {
        /// The file.
        file: HandFile,
        /// The text.
        text: String,
    },
    /// Go on with this model profile.
    Profile {
        /// The name of the profile.
        name: String,
        /// Only for the next iteration.
        once: bool,
    },
    /// Let the sandbox reach more hosts.
    AllowHosts {
        /// Each as `HOST[:PORT]`.
        hosts: Vec<String>,
    },
    /// Go on with another text of the task.
    Edit {
        /// The whole text.
        task: String,
    },
    /// Go back to the code as it was after an iteration. What was spent since stays spent.
    Retry {
        /// That iteration; 0 is the beginning.
        from: u32,
    },
    /// Run a command in the clone and show its output. It is one of a list: see `RunControl::run_command`.
    Command {
        /// Its name, which is part of a file name.
        name: String,
        /// The command.
        line: String,
    },
    /// Work on what reviewers of the pull request ask for, also if the run is done.
    Review(ReviewRound),
}

impl Intervention {
    /// Whether it is about the work in progress, so that it means nothing to a run at rest.
    #[must_use]
    pub fn is_order(&self) -> bool {
        matches!(self, Self::Stop | Self::Pause | Self::Rotate)
    }

    /// Why it cannot be asked of any run, for people.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Note { text } if text.trim().is_empty() => Some("the note is empty".to_owned()),
            Self::Sign(sign) => sign.problem(),
            Self::AllowHosts { hosts } if hosts.is_empty() => Some("no host is named".to_owned()),
            _ => None,
        }
    }

    /// A short description for people: one line.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::Stop => "stop".to_owned(),
            Self::Pause => "pause".to_owned(),
            Self::Rotate => "a fresh iteration".to_owned(),
            Self::Note { text } => format!("note: {}", shortened(text)),
            Self::Doctor => "ask the doctor".to_owned(),
            Self::Sign(sign) => format!("sign: {}", shortened(&sign.name)),
            Self::Append { file, text } => format!("appended to {}: {}", file.name(), shortened(text)),
            Self::Profile { name, once: true } => format!("profile {} for one iteration", shortened(name)),
            Self::Profile { name, once: false } => format!("profile {}", shortened(name)),
            Self::AllowHosts { hosts } => format!("allow network access to {}", shortened(&hosts.join(", "))),
            Self::Edit { .. } => "edited task".to_owned(),
            Self::Retry { from: 0 } => "retry from the beginning".to_owned(),
            Self::Retry { from } => format!("retry from iteration {from}"),
            Self::Command { name, line } => format!("run {}: {}", shortened(name), shortened(line)),
            Self::Review(round) => round.summary(),
        }
    }
}

/// The beginning of a text, as one line.
fn shortened(text: &str) -> String {
    let line = one_line(text);
    match first_bytes(&line, SUMMARY_BYTES) {
        shown if shown.len() < line.len() => format!("{shown}..."),
        _ => line,
    }
}

/// A sign: one lesson in the guardrails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sign {
    /// Its name.
    pub name: String,
    /// When the agent should think of it.
    pub trigger: String,
    /// What the agent should do then.
    pub instruction: String,
    /// What shows that it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

impl Sign {
    /// The entry of `guardrails.md`.
    #[must_use]
    pub fn text(&self, added_after: u32) -> String {
        let evidence = self.evidence.as_deref().unwrap_or("none given");
        format!(
            "\n### sign: {}\n- trigger: {}\n- instruction: {}\n- added_after: iteration {added_after}\n- evidence: {}\n",
            self.name.trim(),
            self.trigger.trim(),
            self.instruction.trim(),
            evidence.trim(),
        )
    }

    fn problem(&self) -> Option<String> {
        let fields = [
            ("name", Some(&self.name)),
            ("trigger", Some(&self.trigger)),
            ("instruction", Some(&self.instruction)),
            ("evidence", self.evidence.as_ref()),
        ];
        fields.into_iter().find_map(|(field, text)| match text?.trim() {
            "" => Some(format!("the {field} of the sign is empty")),
            text if text.contains('\n') => Some(format!("the {field} of the sign has more than one line")),
            _ => None,
        })
    }
}

/// A run file that a person may append to by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandFile {
    /// `guardrails.md`
    Guardrails,
    /// `notes.md`
    Notes,
}

impl HandFile {
    /// Both files.
    pub const ALL: [Self; 2] = [Self::Guardrails, Self::Notes];

    /// The name of the file below `.ralph/`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Guardrails => "guardrails.md",
            Self::Notes => "notes.md",
        }
    }
}

/// An intervention with who asked for it, and when. The run carries it out once, whatever happens in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterventionRequest {
    /// Its id: two requests with the same id are one. Safe as a file name.
    pub id: String,
    /// Who asked, for people.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// What for.
    #[serde(flatten)]
    pub intervention: Intervention,
}

impl InterventionRequest {
    /// A request with an id of its own.
    #[must_use]
    pub fn new(intervention: Intervention, by: impl Into<String>, at: Timestamp) -> Self {
        let id = format!("{:020}-{:08x}", at.as_nanosecond(), fastrand::u32(..));
        Self {
            id,
            by: by.into(),
            at,
            intervention,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn sign(trigger: &str, evidence: Option<&str>) -> Sign {
        Sign {
            name: "small steps".to_owned(),
            trigger: trigger.to_owned(),
            instruction: "stop".to_owned(),
            evidence: evidence.map(str::to_owned),
        }
    }

    #[test]
    fn a_sign_has_the_documented_form() {
        assert_eq!(
            sign("a large diff", None).text(3),
            "\n### sign: small steps\n- trigger: a large diff\n- instruction: stop\n- added_after: iteration 3\n- evidence: none given\n"
        );
    }

    #[rstest]
    #[case::whole(sign("t", Some("e")), None)]
    #[case::blank(sign(" ", None), Some("the trigger of the sign is empty"))]
    #[case::two_lines(
        sign("t", Some("a\n### sign: b")),
        Some("the evidence of the sign has more than one line")
    )]
    fn a_sign_is_checked(#[case] sign: Sign, #[case] problem: Option<&str>) {
        assert_eq!(Intervention::Sign(sign).problem().as_deref(), problem);
    }

    #[test]
    fn a_summary_is_one_short_line() {
        let text = format!("a\nb {}", "x".repeat(200));
        let summary = Intervention::Note { text }.summary();
        assert!(
            summary.starts_with("note: a b x") && summary.ends_with("..."),
            "{summary}"
        );
        assert!(summary.len() < 100 && !summary.contains('\n'));
    }

    #[test]
    fn a_request_is_stored_and_read_back() {
        let asked = InterventionRequest::new(
            Intervention::Sign(sign("t", None)),
            "someone",
            Timestamp::UNIX_EPOCH,
        );
        let text = serde_json::to_string(&asked).unwrap();
        assert!(
            text.contains(r#""request":"sign","name":"small steps""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<InterventionRequest>(&text).unwrap(), asked);
    }
}
