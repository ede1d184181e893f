//! Google's Gemini API.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{ApiError, ModelApi, ModelRoute};
use super::credential_kind::CredentialRecord;
use super::fields::FieldList;
use super::metered_call::MeteredCall;
use super::{AuthMethod, CredentialKind, ModelService};

/// The most output tokens of any model, for a call without a limit.
const MAX_OUTPUT: u64 = 65_536;

/// Google's Gemini API.
pub static GOOGLE: ModelService = ModelService {
    name: "Google",
    hosts: &["generativelanguage.googleapis.com"],
    sandbox_host: "google.ralph.internal",
    base_url: Some("https://generativelanguage.googleapis.com"),
    credentials: &[GOOGLE_KEY],
    routes: &[
        ModelRoute::metered(
            "/v1beta/models/*:streamGenerateContent",
            &GENERATE_CONTENT,
            error_body,
        ),
        ModelRoute::metered("/v1beta/models/*:generateContent", &GENERATE_CONTENT, error_body),
        ModelRoute::metered("/v1beta/models/*:countTokens", &COUNT_TOKENS, error_body),
        ModelRoute::free("GET", "/v1beta/models", error_body),
    ],
    headers: &["x-goog-api-client", "x-server-timeout"],
    parameters: &["alt", "pageSize", "pageToken"],
    check_path: "/v1beta/models",
    refuses_credential: |status, body| {
        let details = body["error"]["details"].as_array();
        let is_invalid = |detail: &Value| detail["reason"] == "API_KEY_INVALID";
        status == 401 || details.is_some_and(|details| details.iter().any(is_invalid))
    },
    no_login: Some("the gateway does not support logins with a Google account"),
};

const GOOGLE_KEY: CredentialKind = &CredentialRecord {
    name: "google-api-key",
    title: "the Gemini API key",
    auth: AuthMethod::ApiKey,
    variable: "GEMINI_API_KEY",
    variable_doc: "Key of Google's Gemini API.",
    header: Some("x-goog-api-key"),
    prefix: "",
    agent: Some("gemini"),
};

/// `generateContent`, as a stream or not. The model is part of the path.
static GENERATE_CONTENT: ModelApi = ModelApi {
    name: "generate-content",
    fields: &FIELDS,
    parse_call: |path, traits, body| {
        let call: GenerateCall = serde_json::from_slice(&body)?;
        let config = call.generation_config.unwrap_or_default();
        let limit = config.max_output_tokens.unwrap_or(MAX_OUTPUT);
        let output = limit.saturating_mul(config.candidate_count.unwrap_or(1).max(1));
        MeteredCall::new(model_name(path), output, traits, body)
    },
    event_markers: &["\"usageMetadata\""],
    read_event: |event, state| {
        let Ok(event) = serde_json::from_str::<GenerateEvent>(event) else {
            return;
        };
        // Every event reports the usage so far. The last one has a finish reason.
        let is_last = event
            .candidates
            .iter()
            .any(|candidate| candidate.finish_reason.is_some());
        if let Some(usage) = event.usage_metadata {
            state.is_over |= is_last;
            state.report(is_last, |call| {
                call.cache_read = usage.cached_content_token_count;
                call.input = usage
                    .prompt_token_count
                    .saturating_add(usage.tool_use_prompt_token_count)
                    .saturating_sub(call.cache_read);
                call.output = usage
                    .candidates_token_count
                    .saturating_add(usage.thoughts_token_count);
            });
        }
    },
};

/// The count of tokens, whose answer is its usage.
static COUNT_TOKENS: ModelApi = ModelApi {
    name: "count-tokens",
    fields: &FIELDS,
    parse_call: |path, traits, body| MeteredCall::new(model_name(path), 0, traits, body),
    event_markers: &[],
    read_event: |event, state| {
        if let Ok(TokenCount { total_tokens }) = serde_json::from_str(event) {
            state.report(true, |call| call.input = total_tokens);
        }
    },
};

static FIELDS: LazyLock<FieldList> =
    LazyLock::new(|| FieldList::parse(include_str!("fields/generate_content.txt")));

/// The name of the model in a path.
fn model_name(path: &str) -> &str {
    let name = path.rsplit('/').next().and_then(|name| name.split(':').next());
    name.unwrap_or_default()
}

/// The fields of a call that bound its cost.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerateCall {
    generation_config: Option<GenerationConfig>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    max_output_tokens: Option<u64>,
    candidate_count: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenCount {
    total_tokens: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerateEvent {
    #[serde(default)]
    candidates: Vec<Candidate>,
    usage_metadata: Option<UsageMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "these are the names of the API")]
struct UsageMetadata {
    prompt_token_count: u64,
    tool_use_prompt_token_count: u64,
    cached_content_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
}

fn error_body(error: &ApiError) -> Value {
    let status = match error.status {
        400 | 413 | 415 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        402 | 403 => "PERMISSION_DENIED",
        500 => "INTERNAL",
        _ => "UNAVAILABLE",
    };
    json!({"error": {"code": error.status, "message": error.message, "status": status}})
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rstest::rstest;

    use super::*;
    use crate::model::UsageReader;
    use crate::model::service::{CallError, CallRules};
    use crate::usage::Tokens;

    const PATH: &str = "/v1beta/models/gemini-3-pro:streamGenerateContent";

    fn parse(body: &str) -> Result<MeteredCall, CallError> {
        let rules = CallRules {
            fields: &[],
            allows_address: &|_| false,
        };
        GENERATE_CONTENT.parse(PATH, rules, Bytes::from(body.to_owned()))
    }

    #[rstest]
    #[case("{}", MAX_OUTPUT)]
    #[case(r#"{"generationConfig":{"maxOutputTokens":100}}"#, 100)]
    #[case(r#"{"generationConfig":{"maxOutputTokens":100,"candidateCount":2}}"#, 200)]
    fn a_call_is_bounded(#[case] body: &str, #[case] output: u64) {
        let call = parse(body).unwrap();
        assert_eq!(
            (call.model.as_str(), call.worst.tokens.output),
            ("gemini-3-pro", output)
        );
    }

    #[test]
    fn a_search_has_no_bound() {
        let call = parse(r#"{"tools":[{"googleSearch":{}}]}"#).unwrap();
        assert!(call.worst.known.is_some());
    }

    #[rstest]
    #[case(r#"{"tools":[{"urlContext":{}}]}"#)]
    #[case(r#"{"tools":[{"mcp_servers":[]}]}"#)]
    #[case(r#"{"cachedContent":"cachedContents/1"}"#)]
    #[case(r#"{"generationConfig":{},"generation_config":{}}"#)]
    #[case(r#"{"contents":[{"parts":[{"fileData":{"fileUri":"https://a.example/x"}}]}]}"#)]
    #[case(r#"{"generateContentRequest":{"tools":[{"codeExecution":{}}]}}"#)]
    #[case("[]")]
    fn an_ambiguous_or_unsafe_call_is_an_error(#[case] body: &str) {
        assert!(parse(body).is_err());
    }

    const FIRST: &str = r#"{"candidates":[{"content":{}}],"usageMetadata":{"promptTokenCount":100}}"#;
    const LAST: &str = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,
        "cachedContentTokenCount":10,"candidatesTokenCount":20,"thoughtsTokenCount":5}}"#;

    #[rstest]
    #[case::whole(&[FIRST, LAST], Some(Tokens { input: 100, output: 25 }))]
    #[case::interrupted(&[FIRST], None)]
    fn usage_is_read(#[case] events: &[&str], #[case] expected: Option<Tokens>) {
        let mut reader = UsageReader::new(&GENERATE_CONTENT, "text/event-stream", None);
        for event in events {
            reader.push(format!("data: {}\r\n\r\n", event.replace('\n', "")).as_bytes());
        }
        assert_eq!(reader.finish(false).map(|usage| usage.tokens()), expected);
    }
}
