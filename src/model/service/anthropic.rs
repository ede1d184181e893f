//! Anthropic.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{ApiError, ModelApi, ModelRoute};
use super::api_usage::{UsageFields, UsageState};
use super::credential_kind::CredentialRecord;
use super::fields::FieldList;
use super::metered_call::{CallFormat, MeteredCall};
use super::{AuthMethod, CredentialKind, ModelService};

/// Anthropic's API.
pub static ANTHROPIC: ModelService = ModelService {
    name: "Anthropic",
    hosts: &["api.anthropic.com"],
    sandbox_host: "anthropic.ralph.internal",
    base_url: Some("https://api.anthropic.com"),
    credentials: &[ANTHROPIC_LOGIN, ANTHROPIC_KEY],
    routes: &[
        MESSAGES_ROUTE,
        COUNT_TOKENS_ROUTE,
        ModelRoute::free("GET", "/v1/models", error_body),
    ],
    headers: &[
        "anthropic-beta",
        "anthropic-dangerous-direct-browser-access",
        "anthropic-version",
        "x-app",
        "x-claude-*",
        "x-client-request-id",
        "x-stainless-*",
    ],
    parameters: &["beta", "limit", "after_id", "before_id"],
    check_path: "/v1/models",
    refuses_credential: |status, _| status == 401,
    no_login: None,
};

/// The login of a Claude subscription.
pub const ANTHROPIC_LOGIN: CredentialKind = &CredentialRecord {
    name: "anthropic-oauth",
    title: "the Claude login",
    auth: AuthMethod::OAuth,
    variable: "CLAUDE_CODE_OAUTH_TOKEN",
    variable_doc: "Login of Claude, as `claude setup-token` prints it; one stored by `ralph token store` wins.",
    header: None,
    prefix: "sk-ant-oat01-",
    agent: Some("claude"),
};

/// A key of the Anthropic API.
pub const ANTHROPIC_KEY: CredentialKind = &CredentialRecord {
    name: "anthropic-api-key",
    title: "the Anthropic API key",
    auth: AuthMethod::ApiKey,
    variable: "ANTHROPIC_API_KEY",
    variable_doc: "Key of Anthropic.",
    header: Some("x-api-key"),
    prefix: "sk-ant-api",
    agent: Some("claude"),
};

/// A call of the Messages API.
pub(super) const MESSAGES_ROUTE: ModelRoute = ModelRoute::metered("/v1/messages", &MESSAGES, error_body);

/// Counts the tokens of a call. It is free at Anthropic, but a model gateway may ask a model.
pub(super) const COUNT_TOKENS_ROUTE: ModelRoute =
    ModelRoute::metered("/v1/messages/count_tokens", &COUNT_TOKENS, error_body);

static FIELDS: LazyLock<FieldList> = LazyLock::new(|| FieldList::parse(include_str!("fields/messages.txt")));

/// The Messages API.
pub(super) static MESSAGES: ModelApi = ModelApi {
    name: "messages",
    fields: &FIELDS,
    parse_call: |_, traits, body| {
        let format = CallFormat {
            output_limit: |fields| fields.max_tokens,
            output_field: "max_tokens",
            has_stream_options: false,
            input_percent: 200,
        };
        MeteredCall::parse(&format, traits, &body)
    },
    event_markers: &["\"usage\"", "message_stop"],
    read_event,
};

/// The count of tokens, whose answer is its usage.
static COUNT_TOKENS: ModelApi = ModelApi {
    name: "count-tokens",
    fields: &FIELDS,
    parse_call: |_, traits, body| {
        let format = CallFormat {
            output_limit: |_| Some(0),
            output_field: "max_tokens",
            has_stream_options: false,
            input_percent: 200,
        };
        MeteredCall::parse(&format, traits, &body)
    },
    event_markers: &[],
    read_event: |event, state| {
        if let Ok(usage) = serde_json::from_str::<UsageFields>(event) {
            state.report(true, |call| call.update(&usage));
        }
    },
};

#[derive(Deserialize)]
struct MessagesEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    message: Option<MessageStart>,
    usage: Option<UsageFields>,
}

#[derive(Deserialize)]
struct MessageStart {
    usage: Option<UsageFields>,
}

fn read_event(event: &str, state: &mut UsageState) {
    let Ok(event) = serde_json::from_str::<MessagesEvent<'_>>(event) else {
        return;
    };
    state.is_over |= event.kind.as_deref() == Some("message_stop");
    // The first event has input tokens only.
    let has_output = event.message.is_none();
    let usage = event.message.map_or(event.usage, |message| message.usage);
    if let Some(usage) = usage {
        state.report(has_output, |call| call.update(&usage));
    }
}

fn error_body(error: &ApiError) -> Value {
    json!({"type": "error", "error": {"type": error.kind, "message": error.message}})
}
