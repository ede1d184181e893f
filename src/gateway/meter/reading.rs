//! Reads the usage that a response reports, while it passes.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::Deserialize;

use crate::model::{EventParser, known_cost};
use crate::usage::{Price, Tokens, Usd};

/// The longest JSON body that is parsed, in bytes.
const MAX_JSON: usize = 32 << 20;

/// Reads the usage of one response from pieces of any size.
#[derive(Debug)]
pub(in crate::gateway) enum UsageReader {
    /// A stream of server-sent events.
    Events(Box<UsageEvents>),
    /// A JSON body.
    Json(Vec<u8>),
    /// Another format, which reports nothing.
    Nothing,
}

impl UsageReader {
    /// The reader for a response with these headers.
    pub(in crate::gateway) fn new(content_type: &str, content_encoding: Option<&str>) -> Self {
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

    /// Adds the next bytes.
    pub(in crate::gateway) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Events(events) => events.push(bytes),
            Self::Json(body) if body.len() + bytes.len() <= MAX_JSON => body.extend_from_slice(bytes),
            Self::Json(_) => *self = Self::Nothing,
            Self::Nothing => {}
        }
    }

    /// Whether the response has sent its final event.
    pub(in crate::gateway) fn is_over(&self) -> bool {
        matches!(self, Self::Events(events) if events.is_over)
    }

    /// The usage; `None` when the response did not report it, or is incomplete: some services send interim reports.
    pub(in crate::gateway) fn finish(self, is_complete: bool) -> Option<CallUsage> {
        match self {
            Self::Events(events) => {
                let is_final = events.is_over || is_complete;
                events.last.filter(|_| events.has_output && is_final)
            }
            Self::Json(body) => {
                let report: UsageReport<'_> = serde_json::from_slice(&body).ok()?;
                let mut usage = CallUsage::default();
                usage.update(&report.usage?);
                Some(usage)
            }
            Self::Nothing => None,
        }
    }
}

/// The state of an event stream.
#[derive(Debug, Default)]
pub(in crate::gateway) struct UsageEvents {
    parser: EventParser,
    pending: VecDeque<String>,
    last: Option<CallUsage>,
    /// Whether output tokens were reported, and not only input tokens.
    has_output: bool,
    is_over: bool,
}

impl UsageEvents {
    fn push(&mut self, bytes: &[u8]) {
        self.parser.push(bytes, &mut self.pending);
        while let Some(event) = self.pending.pop_front() {
            // Most events do not report usage and are not parsed.
            if event == "[DONE]" {
                self.is_over = true;
            } else if event.contains("\"usage\"") || event.contains("message_stop") {
                self.read(&event);
            }
        }
    }

    fn read(&mut self, event: &str) {
        let Ok(report) = serde_json::from_str::<UsageReport<'_>>(event) else {
            return;
        };
        self.is_over |= report.kind.as_deref() == Some("message_stop");
        let (usage, has_output) = match report {
            // The first event of the Messages API, with input tokens only.
            UsageReport {
                message: Some(message),
                ..
            } => (message.usage, false),
            // The last event of the Responses API.
            UsageReport {
                response: Some(response),
                ..
            } => {
                self.is_over |= response.usage.is_some();
                (response.usage, true)
            }
            // Near the end of the Messages API or of a chat completion.
            UsageReport { usage, .. } => (usage, true),
        };
        if let Some(usage) = usage {
            self.last.get_or_insert_default().update(&usage);
            self.has_output |= has_output;
        }
    }
}

/// The usage of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::gateway) struct CallUsage {
    input: u64,
    output: u64,
    cache_written: u64,
    cache_written_1h: u64,
    cache_read: u64,
    /// The cost that the service reported.
    pub(in crate::gateway) quoted: Option<Usd>,
}

impl CallUsage {
    /// All tokens, including those of the cache.
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

    /// The cost at this price, rounded up. Anthropic charges 1.25 or 2 times the input price for tokens that are cached for
    /// five minutes or an hour, and a tenth for tokens that are read from the cache.
    pub(in crate::gateway) fn cost_at(&self, price: Price) -> Usd {
        let hour = self.cache_written_1h.min(self.cache_written);
        let minutes = self.cache_written - hour;
        let hundredths = [
            (self.input, 100),
            (minutes, 125),
            (hour, 200),
            (self.cache_read, 10),
        ];
        let weighted = hundredths.iter().fold(0_u64, |sum, (tokens, weight)| {
            sum.saturating_add(tokens.saturating_mul(*weight))
        });
        price.cost_of(Tokens {
            input: weighted.div_ceil(100),
            output: self.output,
        })
    }

    /// Replaces values by reported ones. Each report is about the whole call so far.
    fn update(&mut self, reported: &ReportedUsage) {
        let set = |own: &mut u64, reported: Option<u64>| *own = reported.unwrap_or(*own);
        set(&mut self.input, reported.input_tokens.or(reported.prompt_tokens));
        set(
            &mut self.output,
            reported.output_tokens.or(reported.completion_tokens),
        );
        // `prompt_tokens` already includes the tokens of the cache.
        if reported.prompt_tokens.is_none() {
            set(&mut self.cache_written, reported.cache_creation_input_tokens);
            set(&mut self.cache_read, reported.cache_read_input_tokens);
        }
        let hour = reported
            .cache_creation
            .as_ref()
            .and_then(|cache| cache.ephemeral_1h_input_tokens);
        set(&mut self.cache_written_1h, hour);
        self.quoted = reported.cost.and_then(known_cost).or(self.quoted);
    }
}

/// An event or a body of any of the three protocols.
#[derive(Deserialize)]
struct UsageReport<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    message: Option<UsageHolder>,
    response: Option<UsageHolder>,
    usage: Option<ReportedUsage>,
}

#[derive(Deserialize)]
struct UsageHolder {
    usage: Option<ReportedUsage>,
}

#[derive(Deserialize)]
struct ReportedUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<ReportedCache>,
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct ReportedCache {
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

    fn read(events: &[&str], cut: usize, is_complete: bool) -> Option<(u64, u64)> {
        let stream = format!("data: {}\n\n", events.join("\n\ndata: "));
        let mut reader = UsageReader::new("text/event-stream", None);
        let (first, second) = stream.as_bytes().split_at(cut.min(stream.len()));
        reader.push(first);
        reader.push(second);
        let tokens = reader.finish(is_complete)?.tokens();
        Some((tokens.input, tokens.output))
    }

    #[rstest]
    #[case::anthropic(&[START, DELTA, STOP], Some((9, 5)), Some((9, 5)))]
    #[case::the_last_report_counts(&[START, DELTA, LATER_DELTA, STOP], Some((9, 7)), Some((9, 7)))]
    #[case::input_only(&[START], None, None)]
    #[case::no_end(&[START, DELTA], Some((9, 5)), None)]
    #[case::responses(&[CREATED, COMPLETED], Some((9, 5)), Some((9, 5)))]
    #[case::no_completion(&[CREATED], None, None)]
    #[case::chat(&[CHUNK, "[DONE]"], Some((9, 5)), Some((9, 5)))]
    #[case::a_cache_in_the_prompt(&[CACHED_CHUNK, "[DONE]"], Some((9, 5)), Some((9, 5)))]
    #[case::interim_usage(&[CHUNK, r#"{"choices":[]}"#], Some((9, 5)), None)]
    #[case::no_usage(&["[DONE]"], None, None)]
    #[case::nonsense(&["\"usage\"", r#"{"usage":7}"#], None, None)]
    fn usage_is_read_from_complete_responses(
        #[case] events: &[&str],
        #[case] complete: Option<(u64, u64)>,
        #[case] incomplete: Option<(u64, u64)>,
    ) {
        assert_eq!(read(events, 0, true), complete);
        assert_eq!(read(events, 0, false), incomplete);
    }

    #[rstest]
    #[case("text/event-stream", Some("gzip"))]
    #[case("text/plain", None)]
    fn other_formats_report_no_usage(#[case] kind: &str, #[case] encoding: Option<&str>) {
        let mut reader = UsageReader::new(kind, encoding);
        reader.push(CHUNK.as_bytes());
        assert_eq!(reader.finish(true), None);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_read(cut: usize) {
            let events = [START, DELTA, STOP];
            prop_assert_eq!(read(&events, cut % 300, false), Some((9, 5)));
        }
    }
}
