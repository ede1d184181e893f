//! Scripts for [`ScriptedModel`](super::ScriptedModel).

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::{CallPurpose, ModelReply};
use crate::usage::{Tokens, Usd};

/// The model of a scripted answer, in records.
pub(super) const SCRIPTED: &str = "scripted";

/// The answers of a scripted model, by iteration and call, in YAML or JSON:
///
/// ```
/// let script = ralph::model::Script::parse(r#"
/// iterations:
///   - - answer: {summary: first try, actions: []}   # call 1 of iteration 1; sent as compact JSON
///       tokens: {input: 900, output: 40}
///       cost_usd: 0.002
///     - text: any words                              # call 2
///   - - text: fine now                               # call 1 of iteration 2
///       fails: {rate_limited: {retry_after_s: 2}}    # twice, and then the text
///       times: 2
///   - - fails: unavailable                           # always
/// then: repeat                                       # iterations from 4 on are like 3; without it the script is over
/// doctor:
///   - text: what a diagnosis gets                    # call 1, whatever the iteration
/// "#).unwrap();
/// # drop(script);
/// ```
///
/// More fields of a call: `cut_off: true`, `delay_ms: 50`. More failures: `unauthorized`, `refused`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    iterations: Vec<Vec<ScriptedCall>>,
    #[serde(default)]
    then: Then,
    #[serde(default)]
    doctor: Vec<ScriptedCall>,
}

/// A script that cannot be parsed.
#[derive(Debug, Error)]
#[error("cannot parse the script")]
pub struct ScriptError(#[source] serde_saphyr::Error);

impl Script {
    /// Reads a script from YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        serde_saphyr::from_str(text).map_err(ScriptError)
    }

    /// The entry for a call.
    pub(super) fn call(&self, iteration: u32, call: u32, purpose: CallPurpose) -> Option<&ScriptedCall> {
        let calls = match purpose {
            CallPurpose::Agent => self.iteration(iteration)?,
            CallPurpose::Doctor => &self.doctor,
        };
        calls.get(usize::try_from(call).ok()?)
    }

    /// The answers that have no other call behind them in their iteration, each with the number of that iteration.
    pub(crate) fn only_answers(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.iterations.iter().enumerate();
        numbered.filter_map(|(index, calls)| {
            let [call] = calls.as_slice() else { return None };
            match &call.outcome {
                ScriptedOutcome::Replies(reply) | ScriptedOutcome::FailsFirst { then: reply, .. } => {
                    Some((index + 1, reply.text.as_str()))
                }
                ScriptedOutcome::Fails(_) => None,
            }
        })
    }

    /// Iterations count from 1.
    fn iteration(&self, number: u32) -> Option<&Vec<ScriptedCall>> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        match (self.iterations.get(index), self.then) {
            (None, Then::Repeat) => self.iterations.last(),
            (found, _) => found,
        }
    }
}

/// What happens after the last iteration of the script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    /// Further calls fail.
    #[default]
    Stop,
    /// The last iteration repeats.
    Repeat,
}

/// One call of the script.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "CallShape")]
pub(super) struct ScriptedCall {
    pub(super) delay_ms: u64,
    pub(super) outcome: ScriptedOutcome,
}

/// The outcome of one call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptedOutcome {
    Replies(ModelReply),
    Fails(ScriptedFailure),
    FailsFirst {
        fault: ScriptedFailure,
        times: u32,
        then: ModelReply,
    },
}

/// A failure in the script.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ScriptedFailure {
    RateLimited { retry_after_s: Option<u32> },
    Unavailable,
    Unauthorized,
    Refused,
}

/// The YAML form of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallShape {
    text: Option<String>,
    answer: Option<Value>,
    fails: Option<ScriptedFailure>,
    times: Option<u32>,
    tokens: Option<Tokens>,
    cost_usd: Option<f64>,
    #[serde(default)]
    cut_off: bool,
    #[serde(default)]
    delay_ms: u64,
}

impl TryFrom<CallShape> for ScriptedCall {
    type Error = String;

    fn try_from(shape: CallShape) -> Result<Self, String> {
        let no_reply = || "a call has one of `text` and `answer`, or `fails` alone".to_owned();
        let cost = shape.cost_usd.map(|dollars| {
            Usd::from_dollars(dollars)
                .ok_or_else(|| format!("`cost_usd: {dollars}` is not an amount of money"))
        });
        let text = match (shape.text, shape.answer) {
            (Some(_), Some(_)) => return Err(no_reply()),
            (text, answer) => text.or(answer.map(|answer| answer.to_string())),
        };
        let cost = cost.transpose()?;
        let reply = text.map(|text| ModelReply {
            text,
            model: SCRIPTED.to_owned(),
            tokens: shape.tokens,
            cost,
            cut_off: shape.cut_off,
            unmetered_attempts: 0,
        });
        let outcome = match (reply, shape.fails, shape.times) {
            (Some(reply), None, None) => ScriptedOutcome::Replies(reply),
            (None, Some(fault), None) => ScriptedOutcome::Fails(fault),
            (Some(then), Some(fault), Some(times)) => ScriptedOutcome::FailsFirst { fault, times, then },
            (None, None, None) => return Err(no_reply()),
            _ => {
                return Err(
                    "`times` says how often a call `fails` before its `text` or `answer`: \
                            give all of them or none"
                        .to_owned(),
                );
            }
        };
        Ok(Self {
            delay_ms: shape.delay_ms,
            outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("iterations: [[{}]]", "one of `text` and `answer`")]
    #[case("iterations: [[{text: a, answer: b}]]", "one of `text` and `answer`")]
    #[case("iterations: [[{text: a, times: 2}]]", "`times` says how often")]
    #[case("iterations: [[{text: a, fails: unavailable}]]", "`times` says how often")]
    #[case("iterations: [[{fails: unavailable, times: 2}]]", "`times` says how often")]
    #[case("iterations: [[{text: a, cost_usd: -1}]]", "not an amount of money")]
    #[case("iterations: [[{txt: a}]]", "txt")]
    #[case("iterations: [[{fails: sleepy}]]", "sleepy")]
    #[case("iterations: [], then: loop", "loop")]
    #[case("doctor: []", "iterations")]
    #[case("iterations: [[", "")]
    fn invalid_scripts_are_refused(#[case] script: &str, #[case] complaint: &str) {
        let error = Script::parse(script).unwrap_err();
        let source = error.source().unwrap().to_string();
        assert!(source.contains(complaint), "{source}");
    }

    #[test]
    fn a_script_may_be_json() {
        let json = Script::parse(r#"{"iterations": [[{"text": "a"}]]}"#).unwrap();
        assert_eq!(json, Script::parse("iterations:\n- - text: a\n").unwrap());
    }
}
