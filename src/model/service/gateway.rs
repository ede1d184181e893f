//! The user's own model gateway, such as LiteLLM.

use super::anthropic::{COUNT_TOKENS_ROUTE, MESSAGES_ROUTE};
use super::credential_kind::CredentialRecord;
use super::openai::{CHAT_ROUTE, MODELS_ROUTE, RESPONSES_ROUTE};
use super::{AuthMethod, CredentialKind, ModelService};

/// The model gateway that `model_endpoint` names.
pub static GATEWAY: ModelService = ModelService {
    name: "the model gateway",
    hosts: &["models.ralph.internal"],
    sandbox_host: "models.ralph.internal",
    base_url: None,
    credentials: &[GATEWAY_KEY],
    routes: &[
        CHAT_ROUTE,
        RESPONSES_ROUTE,
        MODELS_ROUTE,
        MESSAGES_ROUTE,
        COUNT_TOKENS_ROUTE,
    ],
    headers: &[
        // Of clients of Anthropic.
        "anthropic-*",
        "x-app",
        "x-claude-*",
        // Of clients of OpenAI.
        "openai-beta",
        "originator",
        "session-id",
        "thread-id",
        "version",
        "x-codex-*",
        "x-openai-internal-codex-responses-lite",
        "x-session-affinity",
        "x-session-id",
        // Of both.
        "x-client-request-id",
        "x-stainless-*",
    ],
    parameters: &["beta", "client_version", "limit"],
    check_path: "/v1/models",
    // LiteLLM without a database answers `no_db_connection` to an unknown key.
    refuses_credential: |status, body| {
        let error = &body["error"];
        status == 401 || error["type"] == "no_db_connection" || error["code"] == "no_db_connection"
    },
    no_login: None,
};

/// The key of the model gateway.
pub const GATEWAY_KEY: CredentialKind = &CredentialRecord {
    name: "gateway-key",
    title: "the model gateway key",
    auth: AuthMethod::Gateway,
    variable: "LITELLM_API_KEY",
    variable_doc: "Key of the model endpoint, unless `model_endpoint.api_key_env` names another variable.",
    header: None,
    prefix: "",
    agent: None,
};
