//! Credentials that a sandbox uses and never holds: Daytona's vault keeps them, and its way out puts them in, for their
//! own hosts alone. Commands see a placeholder.

use std::collections::BTreeMap;

use reqwest::Method;

use super::api::Api;
use super::client::Repeat;
use super::labels::Labels;
use super::wire::{KeptSecret, NewSecret, Remote, SecretPage};
use super::{DaytonaError, DaytonaSecret};
use crate::network::HostName;

/// How many entries one page of the vault holds.
const PAGE: u32 = 100;

/// What stands between the name of a sandbox and that of a variable. The former has single dashes alone.
const BETWEEN: &str = "--";

/// What the vault calls the credential that this variable of this sandbox stands for.
pub(super) fn name_of(sandbox: &str, secret: &DaytonaSecret) -> String {
    format!("{sandbox}{BETWEEN}{}", secret.variable)
}

/// The variables of a sandbox that stand for credentials.
pub(super) fn variables_of(remote: &Remote) -> Vec<String> {
    let is_one = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let names = Labels::read(&remote.labels).map(|labels| labels.secrets);
    let variables = names.iter().flatten().filter_map(|name| name.split_once(BETWEEN));
    let variables = variables.map(|(_, variable)| variable).filter(is_one);
    variables.map(ToOwned::to_owned).collect()
}

/// Variables of a sandbox, and what the vault calls that which they stand for.
pub(super) fn mounted(sandbox: &str, secrets: &[DaytonaSecret]) -> Vec<BTreeMap<String, String>> {
    secrets
        .iter()
        .map(|secret| BTreeMap::from([(secret.variable.clone(), name_of(sandbox, secret))]))
        .collect()
}

/// Puts the credentials of a sandbox into the vault, in place of those it has under these names.
pub(super) async fn keep(api: &Api, sandbox: &str, secrets: &[DaytonaSecret]) -> Result<(), DaytonaError> {
    for secret in secrets {
        let name = name_of(sandbox, secret);
        let new = |name| NewSecret {
            name,
            value: secret.value.expose(),
            hosts: secret.hosts.iter().map(HostName::as_str).collect(),
        };
        let call = api.call(&Method::POST, "secret");
        let added = call.with(|request| request.json(&new(Some(&name))));
        match added.done(Repeat::Harmless).await {
            Err(error) if error.status() == Some(409) => {}
            added => {
                added?;
                continue;
            }
        }
        for kept in found(api, &name).await? {
            let call = api.call(&Method::PATCH, &format!("secret/{}", kept.id));
            call.with(|request| request.json(&new(None)))
                .done(Repeat::Harmless)
                .await?;
        }
    }
    Ok(())
}

/// Takes credentials out of the vault; those that are gone are fine.
pub(super) async fn forget(api: &Api, names: &[String]) -> Result<(), DaytonaError> {
    for name in names {
        for kept in found(api, name).await? {
            let call = api.call(&Method::DELETE, &format!("secret/{}", kept.id));
            match call.done(Repeat::Harmless).await {
                Err(error) if error.is_not_found() => {}
                gone => gone?,
            }
        }
    }
    Ok(())
}

/// What the vault has under a name.
async fn found(api: &Api, name: &str) -> Result<Vec<KeptSecret>, DaytonaError> {
    let mut found = Vec::new();
    let mut cursor = None::<String>;
    loop {
        let mut query = vec![("limit", PAGE.to_string()), ("name", name.to_owned())];
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let call = api.call(&Method::GET, "secret/paginated");
        let page: SecretPage = call
            .with(|request| request.query(&query))
            .json(Repeat::Harmless)
            .await?;
        // The filter may take a part of a name for it.
        found.extend(page.items.into_iter().filter(|kept| kept.name == name));
        cursor = page.next_cursor.filter(|next| !next.is_empty());
        if cursor.is_none() {
            return Ok(found);
        }
    }
}
