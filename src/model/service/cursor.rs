//! Cursor. Its protocol is not documented, so the broker cannot add credentials to its calls.

use super::credential_kind::CredentialRecord;
use super::{AuthMethod, CredentialKind, ModelService};

/// Cursor's service.
pub static CURSOR: ModelService = ModelService {
    name: "Cursor",
    hosts: &["**.cursor.sh"],
    sandbox_host: "",
    base_url: None,
    credentials: &[CURSOR_KEY],
    routes: &[],
    headers: &[],
    parameters: &[],
    check_path: "",
    refuses_credential: |_, _| false,
    no_login: None,
};

const CURSOR_KEY: CredentialKind = &CredentialRecord {
    name: "cursor-api-key",
    title: "the Cursor API key",
    auth: AuthMethod::ApiKey,
    variable: "CURSOR_API_KEY",
    variable_doc: "Key of Cursor, for the agent `cursor`.",
    header: None,
    prefix: "",
    agent: Some("cursor"),
};
