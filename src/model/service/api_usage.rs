//! Reads the usage that a response reports, while it passes.

use serde::Deserialize;

use super::ModelApi;
use crate::model::{EventParser, known_cost};
use crate::usage::{Price, Tokens, Usd};

/// The longest JSON body or event that is parsed, in bytes.
const MAX_JSON: usize = 32 << 20;

/// Reads the usage of one response from pieces of any size.
#[derive(Debug)]
pub(crate) struct UsageReader {
    api: &'static ModelApi,
    format: ResponseFormat,
    state: UsageState,
}

#[derive(Debug)]
enum ResponseFormat {
    /// A stream of server-sent events.
    Events(EventParser),
    /// A JSON body.
    Json(Vec<u8>),
    /// Another format, which reports nothing.
    Other,
}

/// What a response has reported so far.
#[derive(Debug, Default)]
pub(crate) struct UsageState {
    usage: Option<ApiUsage>,
    /// Whether output tokens were reported, and not only input tokens.
    has_output: bool,
    /// Whether the final event was read.
    pub(super) is_over: bool,
}

impl UsageState {
    /// Takes a report about the whole call so far.
    pub(super) fn report(&mut self, has_output: bool, update: impl FnOnce(&mut ApiUsage)) {
        update(self.usage.get_or_insert_default());
        self.has_output |= has_output;
    }
}

impl UsageReader {
    /// The reader for a response with these headers.
    pub(crate) fn new(api: &'static ModelApi, content_type: &str, content_encoding: Option<&str>) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let format = match content_encoding {
            None | Some("identity") if kind.eq_ignore_ascii_case("text/event-stream") => {
                ResponseFormat::Events(EventParser::default())
            }
            None | Some("identity") if kind.eq_ignore_ascii_case("application/json") => {
                ResponseFormat::Json(Vec::new())
            }
            _ => ResponseFormat::Other,
        };
        Self {
            api,
            format,
            state: UsageState::default(),
        }
    }

    /// Adds the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match &mut self.format {
            ResponseFormat::Events(parser) => {
                // Most events do not report usage and are not parsed.
                let has_marker =
                    |event: &String| self.api.event_markers.iter().any(|marker| event.contains(marker));
                for event in parser.push(bytes).into_iter().filter(has_marker) {
                    (self.api.read_event)(&event, &mut self.state);
                }
                if parser.buffered() > MAX_JSON {
                    self.format = ResponseFormat::Other;
                    self.state = UsageState::default();
                }
            }
            ResponseFormat::Json(body) if body.len() + bytes.len() <= MAX_JSON => {
                body.extend_from_slice(bytes);
            }
            ResponseFormat::Json(_) => self.format = ResponseFormat::Other,
            ResponseFormat::Other => {}
        }
    }

    /// Whether the response has sent its final event.
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_over
    }

    /// The usage; `None` when the response did not report it, or is incomplete: some services send interim reports.
    pub(crate) fn finish(mut self, is_complete: bool) -> Option<ApiUsage> {
        if let ResponseFormat::Json(body) = &self.format {
            (self.api.read_event)(std::str::from_utf8(body).ok()?, &mut self.state);
            self.state.is_over = true;
        }
        let is_final = self.state.is_over || is_complete;
        self.state.usage.filter(|_| self.state.has_output && is_final)
    }
}

/// What Anthropic charges for a web search, besides the tokens.
const SEARCH_FEE: Usd = Usd::from_cents(1);

/// The usage of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ApiUsage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_written: u64,
    pub(super) cache_written_1h: u64,
    pub(super) cache_read: u64,
    /// Web searches of the service.
    pub(super) searches: u64,
    /// The cost that the service reported.
    pub(crate) quoted: Option<Usd>,
}

impl ApiUsage {
    /// All tokens, including those of the cache.
    pub(crate) fn tokens(&self) -> Tokens {
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
    pub(crate) fn cost_at(&self, price: Price) -> Usd {
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
        let tokens = price.cost_of(Tokens {
            input: weighted.div_ceil(100),
            output: self.output,
        });
        tokens + SEARCH_FEE.saturating_mul(self.searches)
    }

    /// Replaces values by those that Anthropic's or OpenAI's APIs reported.
    pub(super) fn update(&mut self, reported: &UsageFields) {
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
        let searches = reported
            .server_tool_use
            .as_ref()
            .and_then(|tools| tools.web_search_requests);
        set(&mut self.searches, searches);
        self.quoted = reported.cost.and_then(known_cost).max(self.quoted);
    }
}

/// The usage in a response of Anthropic's or OpenAI's APIs, or of LiteLLM, which adds the cost.
#[derive(Deserialize)]
pub(super) struct UsageFields {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation: Option<CacheFields>,
    server_tool_use: Option<ServerToolFields>,
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct ServerToolFields {
    web_search_requests: Option<u64>,
}

#[derive(Deserialize)]
struct CacheFields {
    ephemeral_1h_input_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::model::service::anthropic::MESSAGES;
    use crate::model::service::openai::{CHAT, RESPONSES};

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

    fn read(api: &'static ModelApi, events: &[&str], cut: usize, is_complete: bool) -> Option<(u64, u64)> {
        let stream = format!("data: {}\n\n", events.join("\n\ndata: "));
        let mut reader = UsageReader::new(api, "text/event-stream", None);
        let (first, second) = stream.as_bytes().split_at(cut.min(stream.len()));
        reader.push(first);
        reader.push(second);
        let tokens = reader.finish(is_complete)?.tokens();
        Some((tokens.input, tokens.output))
    }

    #[rstest]
    #[case::anthropic(&MESSAGES, &[START, DELTA, STOP], Some((9, 5)), Some((9, 5)))]
    #[case::the_last_report_counts(&MESSAGES, &[START, DELTA, LATER_DELTA, STOP], Some((9, 7)), Some((9, 7)))]
    #[case::input_only(&MESSAGES, &[START], None, None)]
    #[case::no_end(&MESSAGES, &[START, DELTA], Some((9, 5)), None)]
    #[case::responses(&RESPONSES, &[CREATED, COMPLETED], Some((9, 5)), Some((9, 5)))]
    #[case::no_completion(&RESPONSES, &[CREATED], None, None)]
    #[case::chat(&CHAT, &[CHUNK, "[DONE]"], Some((9, 5)), Some((9, 5)))]
    #[case::a_cache_in_the_prompt(&CHAT, &[CACHED_CHUNK, "[DONE]"], Some((9, 5)), Some((9, 5)))]
    #[case::interim_usage(&CHAT, &[CHUNK, r#"{"choices":[]}"#], Some((9, 5)), None)]
    #[case::no_usage(&CHAT, &["[DONE]"], None, None)]
    #[case::nonsense(&CHAT, &["\"usage\"", r#"{"usage":7}"#], None, None)]
    fn usage_is_read_from_complete_responses(
        #[case] api: &'static ModelApi,
        #[case] events: &[&str],
        #[case] complete: Option<(u64, u64)>,
        #[case] incomplete: Option<(u64, u64)>,
    ) {
        assert_eq!(read(api, events, 0, true), complete);
        assert_eq!(read(api, events, 0, false), incomplete);
    }

    #[rstest]
    #[case("text/event-stream", Some("gzip"))]
    #[case("text/plain", None)]
    fn other_formats_report_no_usage(#[case] kind: &str, #[case] encoding: Option<&str>) {
        let mut reader = UsageReader::new(&CHAT, kind, encoding);
        reader.push(CHUNK.as_bytes());
        assert_eq!(reader.finish(true), None);
    }

    #[test]
    fn an_event_without_end_is_not_kept() {
        let mut reader = UsageReader::new(&CHAT, "text/event-stream", None);
        reader.push(format!("data: {CHUNK}\n\ndata: ").as_bytes());
        reader.push(&vec![b'a'; MAX_JSON + 1]);
        assert!(matches!(reader.format, ResponseFormat::Other));
        assert_eq!(reader.finish(true), None);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_read(cut: usize) {
            let events = [START, DELTA, STOP];
            prop_assert_eq!(read(&MESSAGES, &events, cut % 300, false), Some((9, 5)));
        }
    }
}
