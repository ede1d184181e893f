//! How an agent program reaches its model.

use crate::exec::Command;
use crate::secret::Secret;

/// How an agent program reaches its model: directly, or through the gateway with an address and a phantom that only the
/// gateway accepts.
#[derive(Clone, Debug, Default)]
pub struct ModelAccess {
    /// The base URL of the model service; `None` uses the program's default.
    pub base_url: Option<String>,
    /// The credential to send; `None` where the service asks for none.
    pub credential: Option<AgentCredential>,
    /// What a person has to do when the credential is refused.
    pub credential_hint: String,
}

/// The credential that an agent program sends to its model service.
#[derive(Clone, Debug)]
pub struct AgentCredential {
    /// How it authenticates.
    pub kind: CredentialKind,
    /// The credential, or the phantom that replaces it.
    pub value: Secret,
}

/// How a credential authenticates. It decides which environment variable the program gets it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key of an API account.
    ApiKey,
    /// A bearer token for the user's own model gateway.
    Bearer,
    /// The OAuth token of a subscription.
    OAuth,
}

impl ModelAccess {
    /// Sets the credential in the environment variable that `variable` names for its kind.
    pub(super) fn add_credential(
        &self,
        command: Command,
        variable: impl FnOnce(CredentialKind) -> &'static str,
    ) -> Command {
        match &self.credential {
            Some(credential) => command.env(variable(credential.kind), credential.value.expose()),
            None => command,
        }
    }
}
