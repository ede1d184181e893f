//! What an answer says that it used, read while it passes.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::Deserialize;

use crate::model::{EventParser, known_cost};
use crate::usage::{Price, Tokens, Usd};

/// The longest answer in one body whose usage is read.
const LONGEST_JSON: usize = 32 << 20;

/// Reads the usage of one answer, however its bytes are split.
#[derive(Debug)]
pub(in crate::gateway) enum Reader {
    /// A stream of events.
    Events(Box<Events>),
    /// One body.
    Json(Vec<u8>),
    /// Nothing that can be read: the reservation counts.
    Nothing,
}

impl Reader {
    /// The reader for an answer of this type.
    pub(in crate::gateway) fn of(content_type: &str, content_encoding: Option<&str>) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        match content_encoding {
            None | Some("identity") if kind.eq_ignore_ascii_case("text/event-stream") => {
                Self::Events(Box::default())
            }
            None | Some("identity") if kind.eq_ignore_ascii_case("application/json") => {
                Self::Json(Vec::new())
            }
            _ => Self::Nothing,
        }
    }

    /// Takes the next bytes.
    pub(in crate::gateway) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Events(events) => events.push(bytes),
            Self::Json(body) if body.len() + bytes.len() <= LONGEST_JSON => body.extend_from_slice(bytes),
            Self::Json(_) => *self = Self::Nothing,
            Self::Nothing => {}
        }
    }

    /// Whether all that matters was said, although more may come.
    pub(in crate::gateway) fn is_final(&self) -> bool {
        matches!(self, Self::Events(events) if events.is_final)
    }

    /// What was used; `None` when the answer did not say, or was cut short before it did.
    pub(in crate::gateway) fn finish(self) -> Option<Usage> {
        match self {
            Self::Events(events) => events.last.filter(|_| events.is_final),
            Self::Json(body) => {
                let said: Said<'_> = serde_json::from_slice(&body).ok()?;
                let mut usage = Usage::default();
                usage.update(&said.usage?);
                Some(usage)
            }
            Self::Nothing => None,
        }
    }
}

/// A stream of events so far.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Events {
    parser: EventParser,
    pending: VecDeque<String>,
    last: Option<Usage>,
    is_final: bool,
}

impl Events {
    fn push(&mut self, bytes: &[u8]) {
        self.parser.push(bytes, &mut self.pending);
        while let Some(event) = self.pending.pop_front() {
            // Few events say anything about usage; the others need not be read.
            if event.contains("\"usage\"") {
                self.read(&event);
            }
        }
    }

    fn read(&mut self, event: &str) {
        let Ok(said) = serde_json::from_str::<Said<'_>>(event) else {
            return;
        };
        let (usage, is_final) = match said {
            // The beginning of an answer of Anthropic's: what went in.
            Said {
                message: Some(said), ..
            } => (said.usage, false),
            // The end of an answer of the Responses API.
            Said {
                response: Some(said), ..
            } => (said.usage, true),
            // The end of an answer of Anthropic's, or of a chat completion.
            Said { usage, .. } => (usage, true),
        };
        if let Some(usage) = usage {
            self.last.get_or_insert_default().update(&usage);
            self.is_final |= is_final;
        }
    }
}

/// What a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::gateway) struct Usage {
    input: u64,
    output: u64,
    cache_written: u64,
    cache_written_for_an_hour: u64,
    cache_read: u64,
    /// What the endpoint says that it cost.
    pub(in crate::gateway) quoted: Option<Usd>,
}

impl Usage {
    /// Every token, from a cache or not.
    pub(in crate::gateway) fn tokens(&self) -> Tokens {
        let input = self
            .input
            .saturating_add(self.cache_written)
            .saturating_add(self.cache_read);
        Tokens {
            input,
            output: self.output,
        }
    }

    /// What it costs at this price, rounded up. Anthropic takes 1.25 or 2 times the price for what is kept in the cache
    /// for five minutes or an hour, and a tenth for what is read from there.
    pub(in crate::gateway) fn cost_at(&self, price: Price) -> Usd {
        let hour = self.cache_written_for_an_hour.min(self.cache_written);
        let minutes = self.cache_written - hour;
        let hundredths = [
            (self.input, 100),
            (minutes, 125),
            (hour, 200),
            (self.cache_read, 10),
        ];
        let weigh = |(tokens, weight): (u64, u64)| tokens.saturating_mul(weight);
        let weighed = hundredths.map(weigh).into_iter().fold(0, u64::saturating_add);
        price.of(Tokens {
            input: weighed.div_ceil(100),
            output: self.output,
        })
    }

    /// Takes over what is said. Later words are about the whole call, not about what was added.
    fn update(&mut self, said: &SaidUsage) {
        let set = |own: &mut u64, said: Option<u64>| *own = said.unwrap_or(*own);
        set(&mut self.input, said.input_tokens.or(said.prompt_tokens));
        set(&mut self.output, said.output_tokens.or(said.completion_tokens));
        set(&mut self.cache_written, said.cache_creation_input_tokens);
        set(&mut self.cache_read, said.cache_read_input_tokens);
        let hour = said
            .cache_creation
            .as_ref()
            .and_then(|cache| cache.ephemeral_1h_input_tokens);
        set(&mut self.cache_written_for_an_hour, hour);
        self.quoted = said.cost.and_then(known_cost).or(self.quoted);
    }
}

/// An event or a body, of any of the three languages.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(rename = "type", borrow)]
    _kind: Option<Cow<'a, str>>,
    message: Option<Within>,
    response: Option<Within>,
    usage: Option<SaidUsage>,
}

#[derive(Deserialize)]
struct Within {
    usage: Option<SaidUsage>,
}

#[derive(Deserialize)]
struct SaidUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<SaidCache>,
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct SaidCache {
    ephemeral_1h_input_tokens: Option<u64>,
}
