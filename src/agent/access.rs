//! How an agent program reaches its model.

use crate::exec::Command;
use crate::model::AuthMethod;
use crate::secret::Secret;

use super::AgentRecord;

/// How an agent program reaches its model: directly, or through the gateway with an address and a phantom that only the
/// gateway accepts.
#[derive(Clone, Debug, Default)]
pub struct ModelAccess {
    /// The base URL of the model service; `None` uses the program's default.
    pub base_url: Option<String>,
    /// The credential to send; `None` where the service asks for none.
    pub credential: Option<AgentCredential>,
    /// What a person has to do when the credential is refused, if that is known.
    pub credential_hint: Option<String>,
}

/// The credential that an agent program sends to its model service.
#[derive(Clone, Debug)]
pub struct AgentCredential {
    /// How it authenticates.
    pub auth: AuthMethod,
    /// The credential, or the phantom that replaces it.
    pub value: Secret,
}

impl ModelAccess {
    /// Sets the credential in the variable that an agent has for it.
    pub(super) fn add_credential(&self, command: Command, agent: &AgentRecord) -> Command {
        let Some(credential) = &self.credential else {
            return command;
        };
        match agent.key_variable(credential.auth) {
            Some(variable) => command.env(variable, credential.value.expose()),
            None => command,
        }
    }
}
