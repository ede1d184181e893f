//! Assembles a reply from its chunks.

use super::wire::{ChatChunk, ChatUsage};
use crate::model::{ModelReply, OnText, Profile};
use crate::usage::Usd;

/// A reply so far.
#[derive(Debug, Default)]
pub(super) struct PartialReply {
    text: String,
    model: Option<String>,
    usage: Option<ChatUsage>,
    finish_reason: Option<String>,
    has_begun: bool,
}

impl PartialReply {
    /// Adds a chunk and passes its text on.
    pub(super) fn add(&mut self, chunk: ChatChunk, show: OnText<'_>) {
        self.has_begun |= chunk.usage.is_some() || !chunk.choices.is_empty();
        self.model = chunk
            .model
            .filter(|model| !model.is_empty())
            .or(self.model.take());
        if let Some(usage) = chunk.usage {
            self.usage = Some(self.usage.unwrap_or_default().updated(usage));
        }
        for choice in chunk.choices {
            if let Some(text) = choice
                .delta
                .and_then(|delta| delta.content)
                .filter(|text| !text.is_empty())
            {
                show(&text);
                self.text.push_str(&text);
            }
            self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
        }
    }

    /// Whether there was a finish reason.
    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Whether the service reported usage or sent text, also that of thoughts.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The reply; `None` if there was no finish reason. `quoted` is the cost from the response headers. `reports_cost` says
    /// that a reported cost of zero is the cost.
    pub(super) fn finish(
        self,
        profile: &Profile,
        quoted: Option<Usd>,
        reports_cost: bool,
    ) -> Option<ModelReply> {
        let finish_reason = self.finish_reason?;
        let billed = self.usage.and_then(ChatUsage::tokens);
        let reported = self.usage.and_then(ChatUsage::dollars);
        let in_usage = if reports_cost {
            reported.and_then(Usd::from_dollars)
        } else {
            reported.and_then(known_cost)
        };
        let by_price = billed.and_then(|billed| profile.call_cost(billed));
        Some(ModelReply {
            text: self.text,
            model: self.model.unwrap_or_else(|| profile.litellm_model.clone()),
            tokens: billed.map(|billed| billed.all),
            // The dearest counts, so that a budget holds.
            cost: quoted.max(in_usage).max(by_price),
            cut_off: finish_reason == "length",
            unmetered_attempts: 0,
        })
    }
}

/// A cost that an endpoint reported. LiteLLM reports zero for a model whose price it does not know.
pub(crate) fn known_cost(dollars: f64) -> Option<Usd> {
    Usd::from_dollars(dollars).filter(|cost| *cost > Usd::ZERO)
}
