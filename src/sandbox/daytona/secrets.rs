//! Credentials in Daytona's vault. The sandbox sees placeholders; Daytona's egress proxy replaces them by the credential in
//! requests to its hosts.

use reqwest::Method;
use serde_json::{Value, json};

use super::DaytonaSecret;
use super::api::DaytonaApi;
use super::error::DaytonaError;
use super::labels::DaytonaLabels;
use super::wire::{DaytonaSandboxInfo, DaytonaSecretInfo};
use crate::network::HostName;

/// Separates the names of sandbox and variable. Names of sandboxes have no double dashes.
const SEPARATOR: &str = "--";

/// The name of a credential in the vault.
pub(super) fn vault_name(sandbox: &str, secret: &DaytonaSecret) -> String {
    format!("{sandbox}{SEPARATOR}{}", secret.variable)
}

/// The variables of a sandbox that contain placeholders.
pub(super) fn placeholder_variables(info: &DaytonaSandboxInfo) -> Vec<String> {
    let is_variable = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let names = DaytonaLabels::parse(&info.labels).map(|labels| labels.secrets);
    let variables = names
        .iter()
        .flatten()
        .filter_map(|name| name.split_once(SEPARATOR));
    let variables = variables.map(|(_, variable)| variable).filter(is_variable);
    variables.map(ToOwned::to_owned).collect()
}

/// The variables of a sandbox, each with the name of its credential in the vault; `None` if there are none.
pub(super) fn to_request(sandbox: &str, secrets: &[DaytonaSecret]) -> Option<Vec<Value>> {
    let secrets = secrets
        .iter()
        .map(|secret| json!({ &secret.variable: vault_name(sandbox, secret) }));
    Some(secrets.collect()).filter(|secrets: &Vec<Value>| !secrets.is_empty())
}

/// Stores the credentials of a sandbox in the vault, or replaces their values.
pub(super) async fn store(
    api: &DaytonaApi,
    sandbox: &str,
    secrets: &[DaytonaSecret],
) -> Result<(), DaytonaError> {
    for secret in secrets {
        let name = vault_name(sandbox, secret);
        let hosts: Vec<&str> = secret.hosts.iter().map(HostName::as_str).collect();
        // An existing credential keeps its name.
        let body = |name| json!({ "name": name, "value": secret.value.expose(), "hosts": hosts });
        let added = api.client.post("secret", body(Some(&name)));
        match added.repeatable().done().await {
            Err(error) if error.status() == Some(409) => {}
            added => {
                added?;
                continue;
            }
        }
        for stored in find(api, &name).await? {
            let call = api.client.call(Method::PATCH, &format!("secret/{}", stored.id));
            call.body(body(None)).repeatable().done().await?;
        }
    }
    Ok(())
}

/// Removes credentials from the vault. It is fine if they do not exist.
pub(super) async fn remove(api: &DaytonaApi, names: &[String]) -> Result<(), DaytonaError> {
    for name in names {
        for stored in find(api, name).await? {
            api.client.delete(&format!("secret/{}", stored.id)).await?;
        }
    }
    Ok(())
}

/// The credentials of this name in the vault.
async fn find(api: &DaytonaApi, name: &str) -> Result<Vec<DaytonaSecretInfo>, DaytonaError> {
    let found: Vec<DaytonaSecretInfo> = api.list("secret/paginated", &[("name", name)]).await?;
    // The filter also matches parts of names.
    Ok(found.into_iter().filter(|stored| stored.name == name).collect())
}
