//! OpenAI.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{ApiError, ModelApi, ModelRoute};
use super::api_usage::UsageFields;
use super::credential_kind::CredentialRecord;
use super::fields::FieldList;
use super::metered_call::{CallFormat, MeteredCall};
use super::{AuthMethod, CredentialKind, ModelService};

/// OpenAI's API.
pub static OPENAI: ModelService = ModelService {
    name: "OpenAI",
    hosts: &["api.openai.com"],
    sandbox_host: "openai.ralph.internal",
    base_url: Some("https://api.openai.com"),
    credentials: &[OPENAI_KEY],
    routes: &[RESPONSES_ROUTE, CHAT_ROUTE, MODELS_ROUTE],
    headers: &[
        "openai-beta",
        "originator",
        "session-id",
        "thread-id",
        "version",
        "x-client-request-id",
        "x-codex-*",
        "x-openai-internal-codex-responses-lite",
        "x-session-affinity",
        "x-session-id",
        "x-stainless-*",
    ],
    parameters: &["client_version", "limit"],
    check_path: "/v1/models",
    refuses_credential: |status, _| status == 401,
    no_login: Some("the ChatGPT login is for another service, which the gateway does not support"),
};

/// A key of OpenAI's API.
pub const OPENAI_KEY: CredentialKind = &CredentialRecord {
    name: "openai-api-key",
    title: "the OpenAI API key",
    auth: AuthMethod::ApiKey,
    variable: "OPENAI_API_KEY",
    variable_doc: "Key of OpenAI.",
    header: None,
    prefix: "sk-",
    agent: Some("codex"),
};

/// A call of the Responses API.
pub(super) const RESPONSES_ROUTE: ModelRoute = ModelRoute::metered("/v1/responses", &RESPONSES, error_body);

/// A call of the Chat Completions API.
pub(super) const CHAT_ROUTE: ModelRoute = ModelRoute::metered("/v1/chat/completions", &CHAT, error_body);

/// Lists the models, for free.
pub(super) const MODELS_ROUTE: ModelRoute = ModelRoute::free("GET", "/v1/models", error_body);

static RESPONSES_FIELDS: LazyLock<FieldList> =
    LazyLock::new(|| FieldList::parse(include_str!("fields/responses.txt")));
static CHAT_FIELDS: LazyLock<FieldList> = LazyLock::new(|| FieldList::parse(include_str!("fields/chat.txt")));

/// The Responses API.
pub(super) static RESPONSES: ModelApi = ModelApi {
    name: "responses",
    fields: &RESPONSES_FIELDS,
    parse_call: |_, traits, body| {
        let format = CallFormat {
            output_limit: |fields| fields.max_output_tokens,
            output_field: "max_output_tokens",
            has_stream_options: false,
            input_percent: 100,
        };
        MeteredCall::parse(&format, traits, &body)
    },
    event_markers: &["\"usage\""],
    read_event: |event, state| {
        let Ok(event) = serde_json::from_str::<ResponsesEvent>(event) else {
            return;
        };
        // Only the last event of a stream has the usage.
        let usage = event.response.map_or(event.usage, |response| response.usage);
        if let Some(usage) = usage {
            state.is_over = true;
            state.report(true, |call| call.update(&usage));
        }
    },
};

/// The Chat Completions API, which LiteLLM and many other services have too.
pub(super) static CHAT: ModelApi = ModelApi {
    name: "chat",
    fields: &CHAT_FIELDS,
    parse_call: |_, traits, body| {
        let format = CallFormat {
            output_limit: |fields| fields.max_tokens.max(fields.max_completion_tokens),
            output_field: "max_completion_tokens",
            has_stream_options: true,
            // A model gateway may have a model of Anthropic behind it.
            input_percent: 200,
        };
        MeteredCall::parse(&format, traits, &body)
    },
    event_markers: &["\"usage\"", "[DONE]"],
    read_event: |event, state| {
        state.is_over |= event == "[DONE]";
        let event = serde_json::from_str::<ChatUsageEvent>(event);
        if let Some(usage) = event.ok().and_then(|event| event.usage) {
            state.report(true, |call| call.update(&usage));
        }
    },
};

/// An event of a stream, or a complete response.
#[derive(Deserialize)]
struct ResponsesEvent {
    response: Option<ChatUsageEvent>,
    usage: Option<UsageFields>,
}

#[derive(Deserialize)]
struct ChatUsageEvent {
    usage: Option<UsageFields>,
}

fn error_body(error: &ApiError) -> Value {
    json!({"error": {"message": error.message, "type": error.kind, "param": null, "code": error.code}})
}
