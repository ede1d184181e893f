//! Puts an answer together from its pieces.

use super::wire::{Chunk, Usage};
use crate::model::{OnText, Profile, Reply};
use crate::usage::{Tokens, Usd};

/// An answer in the making.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    text: String,
    model: Option<String>,
    usage: Option<Usage>,
    finish: Option<Finish>,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    /// It had said everything, or gives another reason of its own.
    Ended,
    /// It ran into `max_output_tokens`.
    Length,
}

impl Assembly {
    /// Adds a piece and passes its text on.
    pub(super) fn add(&mut self, chunk: Chunk, show: OnText<'_>) {
        self.model = chunk
            .model
            .filter(|model| !model.is_empty())
            .or(self.model.take());
        self.usage = chunk.usage.or(self.usage.take());
        for choice in chunk.choices {
            if let Some(text) = choice
                .delta
                .and_then(|delta| delta.content)
                .filter(|text| !text.is_empty())
            {
                show(&text);
                self.text.push_str(&text);
            }
            match choice.finish_reason.as_deref() {
                Some("length") => self.finish = Some(Finish::Length),
                Some(_) => self.finish = Some(Finish::Ended),
                None => {}
            }
        }
    }

    /// Whether the model said that it had finished.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The reply, if the model said that it had finished. `quoted` is a cost that the endpoint named elsewhere.
    pub(super) fn finish(self, profile: &Profile, quoted: Option<Usd>) -> Option<Reply> {
        let finish = self.finish?;
        let tokens = self.usage.as_ref().and_then(tokens);
        let in_usage = self.usage.and_then(|usage| usage.cost).and_then(known_cost);
        let by_table = || profile.cost_of(tokens?);
        Some(Reply {
            text: self.text,
            model: self.model.unwrap_or_else(|| profile.litellm_model.clone()),
            tokens,
            cost: quoted.or(in_usage).or_else(by_table),
            cut_off: finish == Finish::Length,
            unmetered_attempts: 0,
        })
    }
}

/// A cost that an endpoint named. Zero is what LiteLLM says of a model whose price it does not know.
pub(crate) fn known_cost(dollars: f64) -> Option<Usd> {
    Usd::from_dollars(dollars).filter(|cost| *cost > Usd::ZERO)
}

fn tokens(usage: &Usage) -> Option<Tokens> {
    Some(Tokens {
        input: usage.prompt_tokens?,
        output: usage.completion_tokens?,
    })
}
