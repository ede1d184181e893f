//! Scripts for the scripted model.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::Purpose;
use crate::usage::{Tokens, Usd};

/// What a scripted model answers, by iteration and call. Read from YAML, and so from JSON too:
///
/// ```
/// let script = ralph::model::Script::parse(r#"
/// iterations:
///   - - answer: {summary: first try, actions: []}   # call 0 of iteration 1; sent as compact JSON
///       tokens: {input: 900, output: 40}
///       cost_usd: 0.002
///     - text: any words                              # call 1
///   - - text: fine now                               # call 0 of iteration 2
///       fails: {rate_limited: {retry_after_s: 2}}    # twice, and then the text
///       times: 2
///   - - fails: unavailable                           # always
/// then: repeat                                       # iterations from 4 on are like 3; without it the script is over
/// doctor:
///   - text: what a diagnosis gets                    # call 0, whatever the iteration
/// "#).unwrap();
/// # drop(script);
/// ```
///
/// Further fields of a call: `cut_off: true`, `delay_ms: 50`. Other failures: `unauthorized`, `refused`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    iterations: Vec<Vec<Call>>,
    #[serde(default)]
    then: Then,
    #[serde(default)]
    doctor: Vec<Call>,
}

/// The script cannot be read.
#[derive(Debug, Error)]
#[error("the script cannot be read")]
pub struct ScriptError(#[source] serde_saphyr::Error);

impl Script {
    /// Reads a script from YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        serde_saphyr::from_str(text).map_err(ScriptError)
    }

    /// What the script has for a call.
    pub(super) fn call(&self, iteration: u32, call: u32, purpose: Purpose) -> Option<&Call> {
        let calls = match purpose {
            Purpose::Agent => self.iteration(iteration)?,
            Purpose::Doctor => &self.doctor,
        };
        calls.get(usize::try_from(call).ok()?)
    }

    /// Iterations count from 1.
    fn iteration(&self, number: u32) -> Option<&Vec<Call>> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        match (self.iterations.get(index), self.then) {
            (None, Then::Repeat) => self.iterations.last(),
            (found, _) => found,
        }
    }
}

/// What comes after the last iteration of the script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    /// Nothing: the script is over.
    #[default]
    Stop,
    /// The last one again.
    Repeat,
}

/// What becomes of one call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "CallShape")]
pub(super) struct Call {
    pub(super) delay_ms: u64,
    pub(super) outcome: Outcome,
}

/// What becomes of one call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Replies(Scripted),
    Fails(Fault),
    FailsFirst {
        fault: Fault,
        times: u32,
        then: Scripted,
    },
}

/// A reply of the script.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scripted {
    pub(super) text: String,
    pub(super) tokens: Option<Tokens>,
    pub(super) cost: Option<Usd>,
    pub(super) cut_off: bool,
}

/// A failure of the script.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Fault {
    RateLimited { retry_after_s: Option<u32> },
    Unavailable,
    Unauthorized,
    Refused,
}

/// A call as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallShape {
    text: Option<String>,
    answer: Option<Value>,
    fails: Option<Fault>,
    times: Option<u32>,
    tokens: Option<Tokens>,
    cost_usd: Option<f64>,
    #[serde(default)]
    cut_off: bool,
    #[serde(default)]
    delay_ms: u64,
}

/// Why a call as it is written makes no sense.
#[derive(Debug, Error)]
enum CallError {
    #[error("a call has one of `text` and `answer`, or `fails` alone")]
    Reply,
    #[error("`times` says how often a call `fails` before its `text` or `answer`: give all or none of them")]
    Times,
    #[error("`cost_usd: {0}` is no amount of money")]
    Cost(f64),
}

impl TryFrom<CallShape> for Call {
    type Error = CallError;

    fn try_from(shape: CallShape) -> Result<Self, CallError> {
        let cost = match shape.cost_usd {
            Some(dollars) => Some(Usd::from_dollars(dollars).ok_or(CallError::Cost(dollars))?),
            None => None,
        };
        let text = match (shape.text, shape.answer) {
            (Some(_), Some(_)) => return Err(CallError::Reply),
            (text, answer) => text.or(answer.map(|answer| answer.to_string())),
        };
        let reply = text.map(|text| Scripted {
            text,
            tokens: shape.tokens,
            cost,
            cut_off: shape.cut_off,
        });
        let outcome = match (reply, shape.fails, shape.times) {
            (Some(reply), None, None) => Outcome::Replies(reply),
            (None, Some(fault), None) => Outcome::Fails(fault),
            (Some(then), Some(fault), Some(times)) => Outcome::FailsFirst { fault, times, then },
            (None, None, None) => return Err(CallError::Reply),
            _ => return Err(CallError::Times),
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
    #[case("iterations: [[{text: a, cost_usd: -1}]]", "no amount of money")]
    #[case("iterations: [[{txt: a}]]", "txt")]
    #[case("iterations: [[{fails: sleepy}]]", "sleepy")]
    #[case("iterations: [], then: loop", "loop")]
    #[case("doctor: []", "iterations")]
    #[case("iterations: [[", "")]
    fn a_script_that_makes_no_sense_is_refused(#[case] script: &str, #[case] complaint: &str) {
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
