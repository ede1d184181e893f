//! What the doctor says about a run, and what of it a person can apply.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::counted;

use super::{Intervention, JournalEntry, JournalLine, Sign};

const MAX_SIGNS: usize = 3;

/// What the doctor says about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DoctorReport {
    /// The patterns of failure, each in one or two sentences.
    pub failure_patterns: Vec<String>,
    /// The likely root causes.
    #[serde(default)]
    pub root_causes: Vec<String>,
    /// One to three lessons for the agent.
    pub signs: Vec<Sign>,
    /// Proposed changes of the task's text.
    #[serde(default)]
    pub spec_edits: Vec<SpecEdit>,
    /// The model profile to go on with; null keeps the current one.
    #[serde(default)]
    pub profile: Option<String>,
}

/// A proposed change of the task's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpecEdit {
    /// A text that occurs exactly once in the task.
    pub find: String,
    /// What replaces it.
    pub replace: String,
}

impl DoctorReport {
    /// Parses the doctor's answer as strictly as an agent's. The error is for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let report: Self = serde_json::from_str(text.trim()).map_err(|error| error.to_string())?;
        if report.failure_patterns.is_empty() {
            return Err("it names no failure pattern".to_owned());
        }
        if report.signs.is_empty() || report.signs.len() > MAX_SIGNS {
            let signs = counted(report.signs.len(), "sign");
            return Err(format!("{signs}, expected 1 to {MAX_SIGNS}"));
        }
        let mut signs = report.signs.iter();
        let problem = signs.find_map(|sign| Intervention::Sign(sign.clone()).problem());
        problem.map_or(Ok(report), Err)
    }

    /// The task with the proposed edits, or why they cannot be made, for people.
    pub fn edited(&self, task: &str) -> Result<String, String> {
        self.spec_edits.iter().try_fold(task.to_owned(), |task, edit| {
            match task.matches(&edit.find).count() {
                1 => Ok(task.replacen(&edit.find, &edit.replace, 1)),
                found => Err(format!(
                    "a proposed edit does not fit the task: {} of `{}`",
                    counted(found, "occurrence"),
                    edit.find.trim()
                )),
            }
        })
    }

    /// The report for people, as a part of `diagnostics.md`.
    #[must_use]
    pub fn text(&self, iteration: u32) -> String {
        let mut text = format!("\n## Diagnosis after iteration {iteration}\n");
        let mut section = |name: &str, lines: &[String]| {
            let lines = lines.iter().map(|line| format!("- {}\n", line.trim()));
            let lines: String = lines.collect();
            let _ = write!(
                text,
                "\n{name}:\n{}",
                if lines.is_empty() { "(none)\n" } else { &lines }
            );
        };
        section("Failure patterns", &self.failure_patterns);
        section("Likely root causes", &self.root_causes);
        let signs: String = self.signs.iter().map(|sign| sign.text(iteration)).collect();
        let _ = write!(text, "\nSigns:\n{signs}\nProposed edits of the task:\n");
        if self.spec_edits.is_empty() {
            text.push_str("(none)\n");
        } else {
            let edits: String = self.spec_edits.iter().map(SpecEdit::diff).collect();
            let _ = write!(text, "```diff\n{edits}```\n");
        }
        let profile = self.profile.as_deref().unwrap_or("(keep the current one)");
        let _ = writeln!(text, "\nProfile: {profile}");
        text
    }
}

impl SpecEdit {
    fn diff(&self) -> String {
        let mut diff = String::new();
        for (sign, text) in [('-', &self.find), ('+', &self.replace)] {
            for line in text.trim_end_matches('\n').lines() {
                let _ = writeln!(diff, "{sign}{line}");
            }
        }
        diff
    }
}

/// A diagnosis in the journal.
#[derive(Clone, Copy, Debug)]
pub struct Diagnosis<'a> {
    /// The number of its journal line, which names it.
    pub seq: u64,
    /// The iteration it came after.
    pub iteration: u32,
    /// What the doctor says.
    pub report: &'a DoctorReport,
    /// Whether the run applied its signs and its profile by itself.
    pub applied: bool,
}

impl<'a> Diagnosis<'a> {
    /// The newest one.
    #[must_use]
    pub fn newest(lines: &'a [JournalLine]) -> Option<Self> {
        lines.iter().rev().find_map(|line| match &line.entry {
            JournalEntry::Diagnosed {
                iteration,
                report,
                applied,
            } => Some(Self {
                seq: line.seq,
                iteration: *iteration,
                report,
                applied: *applied,
            }),
            _ => None,
        })
    }

    /// The id of the request that applies a part of it: the same for the same part, so that it is applied once.
    #[must_use]
    pub fn request_id(&self, part: &str) -> String {
        format!("doctor-{:08}-{part}", self.seq)
    }
}

/// The parts of a diagnosis to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnosisParts {
    /// Its signs, to the guardrails.
    pub signs: bool,
    /// Its edits of the task.
    pub spec: bool,
    /// Its model profile.
    pub profile: bool,
}

impl DiagnosisParts {
    /// All of them.
    pub const ALL: Self = Self {
        signs: true,
        spec: true,
        profile: true,
    };
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SIGN: &str = r#"{"name":"n","trigger":"t","instruction":"i"}"#;

    fn answer(signs: &[&str], rest: &str) -> String {
        format!(
            r#"{{"failure_patterns":["p"],"signs":[{}]{rest}}}"#,
            signs.join(",")
        )
    }

    #[rstest]
    #[case::whole(answer(&[SIGN], ""), None)]
    #[case::no_pattern(answer(&[SIGN], "").replace("\"p\"", ""), Some("names no failure pattern"))]
    #[case::no_signs(answer(&[], ""), Some("0 signs"))]
    #[case::too_many(answer(&[SIGN; 4], ""), Some("4 signs"))]
    #[case::a_sign_of_two_lines(answer(&[&SIGN.replace("\"i\"", r#""i\nj""#)], ""), Some("more than one line"))]
    #[case::unknown_field(answer(&[SIGN], r#","x":1"#), Some("unknown field `x`"))]
    #[case::prose("I think it is stuck.".to_owned(), Some("expected value"))]
    fn an_answer_is_read_strictly(#[case] text: String, #[case] refused: Option<&str>) {
        match (DoctorReport::parse(&text), refused) {
            (Ok(_), None) => {}
            (Err(reason), Some(expected)) => assert!(reason.contains(expected), "{reason}"),
            (result, _) => panic!("{result:?}"),
        }
    }

    #[test]
    fn a_report_shows_edits_as_a_diff_and_makes_them() {
        let edits = r#","spec_edits":[{"find":"- a\n","replace":"- a\n- b"}],"profile":"strong""#;
        let report = DoctorReport::parse(&answer(&[SIGN], edits)).unwrap();
        let text = report.text(3);
        for part in [
            "## Diagnosis after iteration 3",
            "Failure patterns:\n- p\n",
            "Likely root causes:\n(none)\n",
            "### sign: n\n- trigger: t\n- instruction: i\n- added_after: iteration 3\n- evidence: none given\n",
            "```diff\n-- a\n+- a\n+- b\n```\n",
            "Profile: strong\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(report.edited("x\n- a\ny").unwrap(), "x\n- a\n- by");
        let refused = report.edited("x").unwrap_err();
        assert!(refused.contains("0 occurrences of `- a`"), "{refused}");
    }
}
