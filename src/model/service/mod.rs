//! Model services: where they are, which credentials they accept and how their calls are metered.
//!
//! Each service is one file with one [`ModelService`] record, listed in [`MODEL_SERVICES`].

mod anthropic;
mod api;
mod api_usage;
mod credential_kind;
mod cursor;
mod fields;
mod forbidden;
mod gateway;
mod google;
mod metered_call;
mod openai;

pub use anthropic::{ANTHROPIC, ANTHROPIC_KEY, ANTHROPIC_LOGIN};
pub(crate) use api::{ApiError, ModelApi, ModelRoute};
pub(crate) use api_usage::{ApiUsage, UsageReader, UsageState};
pub use credential_kind::{AuthMethod, CredentialKind, CredentialRecord, UnknownAuthMethod};
pub use cursor::CURSOR;
pub(crate) use fields::CallRules;
pub(crate) use forbidden::only_listing_is_forbidden;
pub use gateway::{GATEWAY, GATEWAY_KEY};
pub use google::GOOGLE;
pub(crate) use metered_call::{CallError, MeteredCall};
pub use openai::{OPENAI, OPENAI_KEY};

use serde_json::Value;

/// Every model service.
pub static MODEL_SERVICES: &[&ModelService] = &[&ANTHROPIC, &OPENAI, &GOOGLE, &CURSOR, &GATEWAY];

/// What ralph knows about one model service.
#[derive(Debug)]
pub struct ModelService {
    /// Its name in messages.
    pub name: &'static str,
    /// The host names that its clients connect to, as patterns of the network policy.
    pub hosts: &'static [&'static str],
    /// The name under which a sandbox reaches it through the broker, over plain HTTP; empty if it is not brokered. Not the
    /// vendor's: programs try TLS at a name that they know, wait and try again.
    pub sandbox_host: &'static str,
    /// The address of its API; `None` if the configuration has to name it.
    pub base_url: Option<&'static str>,
    /// The credentials that it accepts, the default first.
    pub credentials: &'static [CredentialKind],
    /// The requests that the broker forwards; none if it cannot add credentials. Errors about other requests have the
    /// format of the first.
    pub(crate) routes: &'static [ModelRoute],
    /// The headers that are forwarded, besides those that every client sends. One may end in `*`.
    pub(crate) headers: &'static [&'static str],
    /// The parameters of a query that are forwarded.
    pub(crate) parameters: &'static [&'static str],
    /// The path of a free request that succeeds with a valid credential.
    pub(crate) check_path: &'static str,
    /// Whether an error response refuses the credential.
    pub(crate) refuses_credential: fn(status: u16, body: &Value) -> bool,
    /// Why a login cannot be used, for services that have logins for other purposes.
    pub no_login: Option<&'static str>,
}

impl ModelService {
    /// Whether the broker can add its credentials to calls.
    #[must_use]
    pub fn is_brokered(&self) -> bool {
        !self.routes.is_empty()
    }

    /// The route of a request.
    pub(crate) fn route(&self, method: &str, path: &str) -> Option<&'static ModelRoute> {
        self.routes.iter().find(|route| route.matches(method, path))
    }

    /// The credential that authenticates with this method.
    #[must_use]
    pub fn credential(&self, auth: AuthMethod) -> Option<CredentialKind> {
        self.credentials.iter().copied().find(|kind| kind.auth == auth)
    }

    /// The service that accepts a credential.
    #[must_use]
    pub fn for_credential(kind: CredentialKind) -> &'static Self {
        let mut services = MODEL_SERVICES.iter().copied();
        services
            .find(|service| service.credentials.contains(&kind))
            .unwrap_or(&GATEWAY)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn credentials_have_unique_names() {
        let kinds: Vec<_> = CredentialRecord::all().collect();
        let names: BTreeSet<_> = kinds.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds.len());
    }

    #[test]
    fn every_credential_belongs_to_its_service() {
        for service in MODEL_SERVICES {
            for kind in service.credentials {
                assert_eq!(ModelService::for_credential(kind).name, service.name);
            }
        }
    }
}
