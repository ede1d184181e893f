//! A model that answers from a script.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::script::{SCRIPTED, Script, ScriptedCall, ScriptedFailure, ScriptedOutcome};
use super::{AttemptError, CallPurpose, Model, ModelError, ModelReply, ModelRequest, OnText, Profile};

/// Answers from a [`Script`], by iteration, call and purpose. Its only state is how often a failure with `times` happened,
/// so a resumed run continues where the script was.
#[derive(Debug)]
pub struct ScriptedModel {
    script: Script,
    failed: Mutex<HashMap<(u32, u32, CallPurpose), u32>>,
}

impl ScriptedModel {
    /// A model that follows this script.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self {
            script,
            failed: Mutex::default(),
        }
    }
}

#[async_trait]
impl Model for ScriptedModel {
    async fn answer(&self, request: &ModelRequest, on_text: OnText<'_>) -> Result<ModelReply, ModelError> {
        let call = self
            .script
            .call(request.iteration, request.call, request.purpose)
            .ok_or(ModelError::ScriptExhausted {
                iteration: request.iteration,
                call: request.call,
                purpose: request.purpose,
            })?;
        tokio::time::sleep(Duration::from_millis(call.delay_ms)).await;
        let mut reply = self.outcome(call, request)?.clone();
        on_text(&reply.text);
        let by_price = || request.profile.cost_of(reply.tokens?);
        reply.cost = reply.cost.or_else(by_price);
        Ok(reply)
    }

    /// No model ran, and no reader of signed evidence should believe that one did.
    fn name<'a>(&'a self, _profile: &'a Profile) -> &'a str {
        SCRIPTED
    }
}

impl ScriptedModel {
    fn outcome<'a>(
        &self,
        call: &'a ScriptedCall,
        request: &ModelRequest,
    ) -> Result<&'a ModelReply, ModelError> {
        match &call.outcome {
            ScriptedOutcome::Replies(reply) => Ok(reply),
            ScriptedOutcome::Fails(fault) => Err(error(fault, request)),
            ScriptedOutcome::FailsFirst { fault, times, then } => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                let count = failed
                    .entry((request.iteration, request.call, request.purpose))
                    .or_default();
                if count == times {
                    return Ok(then);
                }
                *count += 1;
                Err(error(fault, request))
            }
        }
    }
}

fn error(fault: &ScriptedFailure, request: &ModelRequest) -> ModelError {
    let endpoint = "the script".to_owned();
    match fault {
        ScriptedFailure::RateLimited { retry_after_s } => ModelError::RateLimited {
            unmetered_attempts: 0,
            model: request.profile.litellm_model.clone(),
            retry_after: retry_after_s.map(|seconds| Duration::from_secs(seconds.into())),
        },
        ScriptedFailure::Unavailable => ModelError::Unavailable {
            endpoint,
            attempts: 1,
            unmetered_attempts: 0,
            source: AttemptError::Unexplained { status: 503 },
        },
        ScriptedFailure::Unauthorized => ModelError::Unauthorized {
            endpoint,
            status: 401,
        },
        ScriptedFailure::Refused => ModelError::Refused {
            endpoint,
            status: 400,
            message: "scripted refusal".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::model::{ModelMessage, Profile};
    use crate::usage::{Price, Tokens, Usd};

    const SCRIPT: &str = r#"
        iterations:
          - - answer: {actions: [], n: 1, summary: "first\ntry"}
              tokens: {input: 900, output: 40}
              cost_usd: 0.002
            - text: repaired
              cut_off: true
          - - text: fine now
              tokens: {input: 1000000, output: 0}
              fails: {rate_limited: {retry_after_s: 2}}
              times: 2
          - - fails: unavailable
            - fails: unauthorized
            - fails: {rate_limited: {}}
            - fails: refused
        doctor:
          - text: a diagnosis
    "#;

    fn request(iteration: u32, call: u32, purpose: CallPurpose) -> ModelRequest {
        ModelRequest {
            profile: Profile {
                name: "p".to_owned(),
                litellm_model: "m".to_owned(),
                max_output_tokens: 100,
                temperature: None,
                price: None,
                list_price: None,
                tags: Vec::new(),
            },
            messages: vec![ModelMessage::user("hi")],
            iteration,
            call,
            purpose,
        }
    }

    fn model(script: &str) -> ScriptedModel {
        ScriptedModel::new(Script::parse(script).unwrap())
    }

    /// The text of a reply, or the error.
    async fn text_or_error(model: &ScriptedModel, request: &ModelRequest) -> String {
        let mut seen = String::new();
        match model.answer(request, &mut |text| seen.push_str(text)).await {
            Ok(reply) => {
                assert_eq!(reply.text, seen);
                reply.text
            }
            Err(error) => error.to_string(),
        }
    }

    #[rstest]
    #[case(1, 0, CallPurpose::Agent, r#"{"actions":[],"n":1,"summary":"first\ntry"}"#)]
    #[case(1, 1, CallPurpose::Agent, "repaired")]
    #[case(
        1,
        2,
        CallPurpose::Agent,
        "the script has no answer for call 3 of iteration 1"
    )]
    #[case(
        0,
        0,
        CallPurpose::Agent,
        "the script has no answer for call 1 of iteration 0"
    )]
    #[case(2, 0, CallPurpose::Agent, "the model `m` is rate limited for 2 s")]
    #[case(3, 0, CallPurpose::Agent, "the script did not answer after 1 attempt")]
    #[case(3, 1, CallPurpose::Agent, "the script refused the credential (HTTP 401)")]
    #[case(3, 2, CallPurpose::Agent, "the model `m` is rate limited")]
    #[case(
        3,
        3,
        CallPurpose::Agent,
        "the script refused the request (HTTP 400): scripted refusal"
    )]
    #[case(
        4,
        0,
        CallPurpose::Agent,
        "the script has no answer for call 1 of iteration 4"
    )]
    #[case(1, 0, CallPurpose::Doctor, "a diagnosis")]
    #[case(9, 0, CallPurpose::Doctor, "a diagnosis")]
    #[case(
        1,
        1,
        CallPurpose::Doctor,
        "the script has no answer for call 2 of the doctor, which was asked after iteration 1"
    )]
    #[tokio::test]
    async fn calls_get_their_entry(
        #[case] iteration: u32,
        #[case] call: u32,
        #[case] purpose: CallPurpose,
        #[case] expected: &str,
    ) {
        assert_eq!(
            text_or_error(&model(SCRIPT), &request(iteration, call, purpose)).await,
            expected
        );
    }

    #[tokio::test]
    async fn a_failure_with_times_ends() {
        let (model, request) = (model(SCRIPT), request(2, 0, CallPurpose::Agent));
        let mut answers = Vec::new();
        for _ in 0..4 {
            answers.push(text_or_error(&model, &request).await);
        }
        let limited = "the model `m` is rate limited for 2 s";
        assert_eq!(answers, [limited, limited, "fine now", "fine now"]);
    }

    #[tokio::test]
    async fn tokens_and_cost_are_as_written_or_unknown() {
        let model = model(SCRIPT);
        let first = model
            .answer(&request(1, 0, CallPurpose::Agent), &mut |_| {})
            .await
            .unwrap();
        assert_eq!(
            first.tokens,
            Some(Tokens {
                input: 900,
                output: 40
            })
        );
        assert_eq!(first.cost, Usd::from_dollars(0.002));
        assert!(!first.cut_off);
        let second = model
            .answer(&request(1, 1, CallPurpose::Agent), &mut |_| {})
            .await
            .unwrap();
        assert_eq!((second.tokens, second.cost, second.cut_off), (None, None, true));
    }

    #[tokio::test]
    async fn the_price_of_the_profile_counts_where_the_script_names_no_cost() {
        let dollar = Usd::from_dollars(1.0).unwrap();
        let mut request = request(1, 0, CallPurpose::Agent);
        request.profile.price = Some(Price {
            input_per_million: dollar,
            output_per_million: dollar,
        });
        let model = model("iterations: [[{text: x, tokens: {input: 1000000, output: 0}}]]");
        let reply = model.answer(&request, &mut |_| {}).await.unwrap();
        assert_eq!(reply.cost, Some(dollar));
    }

    #[tokio::test]
    async fn a_script_can_repeat_its_last_iteration() {
        let model = model("{iterations: [[{text: a}], [{text: b}]], then: repeat}");
        assert_eq!(
            text_or_error(&model, &request(99, 0, CallPurpose::Agent)).await,
            "b"
        );
        assert_eq!(
            text_or_error(&model, &request(99, 1, CallPurpose::Agent)).await,
            "the script has no answer for call 2 of iteration 99"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_passes_before_the_answer() {
        let started = tokio::time::Instant::now();
        text_or_error(
            &model("iterations: [[{text: a, delay_ms: 1500}]]"),
            &request(1, 0, CallPurpose::Agent),
        )
        .await;
        assert_eq!(started.elapsed(), Duration::from_millis(1500));
    }
}
