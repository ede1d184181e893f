//! A model that answers from a script.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::script::{Call, Fault, Outcome, Script, Scripted};
use super::{Breakdown, Model, ModelError, OnText, Purpose, Reply, Request};

/// Answers from a [`Script`], by the iteration, the call and the purpose of the request. It keeps nothing between calls
/// but how often a failure with `times` was given, so a new process goes on where the old one was.
#[derive(Debug)]
pub struct ScriptedModel {
    script: Script,
    failed: Mutex<HashMap<(u32, u32, Purpose), u32>>,
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

/// The name that a scripted model gives itself.
const NAME: &str = "scripted";

#[async_trait]
impl Model for ScriptedModel {
    async fn answer(&self, request: &Request, on_text: OnText<'_>) -> Result<Reply, ModelError> {
        let call = self
            .script
            .call(request.iteration, request.call, request.purpose)
            .ok_or(ModelError::ScriptExhausted {
                iteration: request.iteration,
                call: request.call,
            })?;
        tokio::time::sleep(Duration::from_millis(call.delay_ms)).await;
        let reply = self.outcome(call, request)?;
        on_text(&reply.text);
        let by_table = || request.profile.cost_of(reply.tokens?);
        Ok(Reply {
            text: reply.text.clone(),
            model: NAME.to_owned(),
            tokens: reply.tokens,
            cost: reply.cost.or_else(by_table),
            cut_off: reply.cut_off,
            unmetered_attempts: 0,
        })
    }
}

impl ScriptedModel {
    fn outcome<'a>(&self, call: &'a Call, request: &Request) -> Result<&'a Scripted, ModelError> {
        match &call.outcome {
            Outcome::Replies(reply) => Ok(reply),
            Outcome::Fails(fault) => Err(error(fault, request)),
            Outcome::FailsFirst { fault, times, then } => {
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

fn error(fault: &Fault, request: &Request) -> ModelError {
    let endpoint = "the script".to_owned();
    match fault {
        Fault::RateLimited { retry_after_s } => ModelError::RateLimited {
            model: request.profile.litellm_model.clone(),
            retry_after: retry_after_s.map(|seconds| Duration::from_secs(seconds.into())),
        },
        Fault::Unavailable => ModelError::Unavailable {
            endpoint,
            attempts: 1,
            unmetered_attempts: 0,
            source: Breakdown::Unexplained { status: 503 },
        },
        Fault::Unauthorized => ModelError::Unauthorized {
            endpoint,
            status: 401,
        },
        Fault::Refused => ModelError::Refused {
            endpoint,
            status: 400,
            message: "as the script has it".to_owned(),
        },
    }
}
