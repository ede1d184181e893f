//! The credentials of model services on this host: which are stored, and how to change that. Their values are never shown.

use schemars::JsonSchema;
use serde::Serialize;

use crate::credential::{self, AuthMethod, CredentialKind};
use crate::gateway::broker::{self, VerifyError};
use crate::model::CredentialRecord;

use super::configuration::{self, GivenSettings, project_dir};
use super::credentials::{connect_upstream, open_vault};
use super::{AssemblyContext, AssemblyError, AssemblyErrorKind, ErrorTopic};

/// A kind of credential, and whether this host has one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CredentialStatus {
    /// The name that it is stored under.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// How it authenticates.
    pub auth: AuthMethod,
    /// The environment variable that is used if none is stored.
    pub variable: &'static str,
    /// Whether one is stored.
    pub stored: bool,
}

/// All kinds of credentials.
pub(crate) async fn credential_statuses(
    context: &AssemblyContext,
) -> Result<Vec<CredentialStatus>, AssemblyError> {
    let vault = open_vault(context)?;
    let mut statuses = Vec::new();
    for kind in CredentialRecord::all() {
        statuses.push(CredentialStatus {
            name: kind.name,
            title: kind.title,
            auth: kind.auth,
            variable: kind.variable,
            stored: vault.load(kind).await?.is_some(),
        });
    }
    Ok(statuses)
}

/// Stores a credential in the keychain, or in a file on a host without a keychain.
pub(crate) async fn store_credential(
    context: &AssemblyContext,
    name: &str,
    value: &str,
) -> Result<(), AssemblyError> {
    let kind = find_kind(name)?;
    let credential = credential::parse(kind, value, context.surroundings.now()).map_err(|error| {
        AssemblyError::usage(error.to_string())
            .with_topic(ErrorTopic::Credentials)
            .with_hint("nothing was stored")
    })?;
    let vault = open_vault(context)?;
    Ok(vault.store(kind, &credential, vault.default_location()).await?)
}

/// Removes a credential. One that is not stored is no error.
pub(crate) async fn remove_credential(context: &AssemblyContext, name: &str) -> Result<(), AssemblyError> {
    Ok(open_vault(context)?.remove(find_kind(name)?).await?)
}

/// Asks the service whether it accepts the credential of this host.
pub(crate) async fn check_credential(context: &AssemblyContext, name: &str) -> Result<(), AssemblyError> {
    let kind = find_kind(name)?;
    let project = project_dir(context.surroundings.dir());
    let config = configuration::load_quietly(context, project, &GivenSettings::default())?;
    let upstream = connect_upstream(context, &config, kind, None).await?;
    upstream
        .verify(&broker::client(Vec::new())?)
        .await
        .map_err(|error| {
            let kind = match &error {
                VerifyError::UnexpectedStatus { .. } | VerifyError::Unreachable(_) => {
                    AssemblyErrorKind::Runtime
                }
                _ => AssemblyErrorKind::Usage,
            };
            AssemblyError::from_error(kind, ErrorTopic::Credentials, &error)
                .with_hint("get a new one from the service and store that")
        })
}

fn find_kind(name: &str) -> Result<CredentialKind, AssemblyError> {
    let found = CredentialRecord::all().find(|kind| kind.name == name);
    found.ok_or_else(|| {
        AssemblyError::not_found("there is no such kind of credential").with_topic(ErrorTopic::Credentials)
    })
}
