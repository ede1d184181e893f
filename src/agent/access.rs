//! How an agent program reaches its model.

use crate::exec::Command;
use crate::secret::Secret;

/// How an agent program reaches its model: filled by whoever puts a run together, with the real thing or with an address
/// and a phantom that mean something only to the gateway.
#[derive(Clone, Debug)]
pub struct Access {
    /// The address of the model; `None` leaves the program at its maker's.
    pub base_url: Option<String>,
    /// What it shows there; `None` where nothing is asked for.
    pub credential: Option<Credential>,
    /// What a person does when the credential is refused.
    pub remedy: String,
}

/// What a program shows to its model.
#[derive(Clone, Debug)]
pub struct Credential {
    /// What it is.
    pub kind: CredentialKind,
    /// The text itself.
    pub value: Secret,
}

/// What a credential is, which decides the variable it is given in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key of an API account.
    ApiKey,
    /// A token that a gateway of one's own takes as a bearer.
    Bearer,
    /// The token of a subscription.
    OAuth,
}

impl Access {
    /// Gives a command the credential, in the variable that the program has for its kind.
    pub(super) fn credential_into(
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
