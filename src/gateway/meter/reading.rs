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

    /// Whether the answer said that it is over, although more may come.
    pub(in crate::gateway) fn is_over(&self) -> bool {
        matches!(self, Self::Events(events) if events.is_over)
    }

    /// What was used; `None` when the answer did not say, or was cut short: some services report as they go on.
    pub(in crate::gateway) fn finish(self, ending: Ending) -> Option<Usage> {
        match self {
            Self::Events(events) => {
                let is_whole = events.is_over || ending == Ending::Whole;
                events.last.filter(|_| events.is_reported && is_whole)
            }
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

/// How the bytes of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Ending {
    /// As they should.
    Whole,
    /// Earlier: the service broke off, or the client went away.
    CutShort,
}

/// A stream of events so far.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Events {
    parser: EventParser,
    pending: VecDeque<String>,
    last: Option<Usage>,
    /// Whether what came out was reported too, not only what went in.
    is_reported: bool,
    is_over: bool,
}

impl Events {
    fn push(&mut self, bytes: &[u8]) {
        self.parser.push(bytes, &mut self.pending);
        while let Some(event) = self.pending.pop_front() {
            // Few events say anything about usage; the others need not be read.
            if event == "[DONE]" {
                self.is_over = true;
            } else if event.contains("\"usage\"") || event.contains("message_stop") {
                self.read(&event);
            }
        }
    }

    fn read(&mut self, event: &str) {
        let Ok(said) = serde_json::from_str::<Said<'_>>(event) else {
            return;
        };
        self.is_over |= said.kind.as_deref() == Some("message_stop");
        let (usage, is_reported) = match said {
            // The beginning of an answer of Anthropic's: what went in.
            Said {
                message: Some(said), ..
            } => (said.usage, false),
            // The end of an answer of the Responses API.
            Said {
                response: Some(said), ..
            } => {
                self.is_over |= said.usage.is_some();
                (said.usage, true)
            }
            // Near the end of an answer of Anthropic's, or of a chat completion.
            Said { usage, .. } => (usage, true),
        };
        if let Some(usage) = usage {
            self.last.get_or_insert_default().update(&usage);
            self.is_reported |= is_reported;
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
        // Where it is called a prompt, what came from a cache is part of it and only told again.
        if said.prompt_tokens.is_none() {
            set(&mut self.cache_written, said.cache_creation_input_tokens);
            set(&mut self.cache_read, said.cache_read_input_tokens);
        }
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
    kind: Option<Cow<'a, str>>,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const START: &str =
        r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
    const DELTA: &str = r#"{"type":"message_delta","usage":{"output_tokens":5}}"#;
    const LATER_DELTA: &str = r#"{"type":"message_delta","usage":{"output_tokens":7}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;
    const CREATED: &str = r#"{"type":"response.created","response":{"usage":null}}"#;
    const COMPLETED: &str =
        r#"{"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":5}}}"#;
    const CACHED_CHUNK: &str =
        r#"{"usage":{"prompt_tokens":9,"completion_tokens":5,"cache_read_input_tokens":4}}"#;
    const CHUNK: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"cost":0.5}}"#;

    fn read(events: &[&str], cut: usize, ending: Ending) -> Option<(u64, u64)> {
        let stream = format!("data: {}\n\n", events.join("\n\ndata: "));
        let mut reader = Reader::of("text/event-stream", None);
        let (first, second) = stream.as_bytes().split_at(cut.min(stream.len()));
        reader.push(first);
        reader.push(second);
        let tokens = reader.finish(ending)?.tokens();
        Some((tokens.input, tokens.output))
    }

    #[rstest]
    #[case::anthropic(&[START, DELTA, STOP], Some((9, 5)), Some((9, 5)))]
    #[case::the_last_word_counts(&[START, DELTA, LATER_DELTA, STOP], Some((9, 7)), Some((9, 7)))]
    #[case::only_what_went_in(&[START], None, None)]
    #[case::no_end(&[START, DELTA], Some((9, 5)), None)]
    #[case::responses(&[CREATED, COMPLETED], Some((9, 5)), Some((9, 5)))]
    #[case::no_completion(&[CREATED], None, None)]
    #[case::chat(&[CHUNK, "[DONE]"], Some((9, 5)), Some((9, 5)))]
    #[case::a_cache_within_the_prompt(&[CACHED_CHUNK, "[DONE]"], Some((9, 5)), Some((9, 5)))]
    #[case::usage_on_the_way(&[CHUNK, r#"{"choices":[]}"#], Some((9, 5)), None)]
    #[case::silence(&["[DONE]"], None, None)]
    #[case::nonsense(&["\"usage\"", r#"{"usage":7}"#], None, None)]
    fn usage_is_read_where_the_answer_is_whole(
        #[case] events: &[&str],
        #[case] whole: Option<(u64, u64)>,
        #[case] cut_short: Option<(u64, u64)>,
    ) {
        assert_eq!(read(events, 0, Ending::Whole), whole);
        assert_eq!(read(events, 0, Ending::CutShort), cut_short);
    }

    #[rstest]
    #[case("text/event-stream", Some("gzip"))]
    #[case("text/plain", None)]
    fn what_cannot_be_read_says_nothing(#[case] kind: &str, #[case] encoding: Option<&str>) {
        let mut reader = Reader::of(kind, encoding);
        reader.push(CHUNK.as_bytes());
        assert_eq!(reader.finish(Ending::Whole), None);
    }

    proptest! {
        #[test]
        fn any_split_reads_the_same(cut: usize) {
            let events = [START, DELTA, STOP];
            prop_assert_eq!(read(&events, cut % 300, Ending::CutShort), Some((9, 5)));
        }
    }
}
