//! The system's keychain, through the program that comes with it. No secret is ever an argument: every user of the
//! machine can read those.

use std::fmt::Write;

use crate::credential::{CredentialError, Kind};
use crate::exec::{Command, Discard, Exit, Host, Status};

/// What everything of ralph's is kept under.
const SERVICE: &str = "ralph";
/// How long the keychain may take. It may ask its owner first.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// A system's keychain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keychain {
    /// That of macOS, through `security`.
    MacOs,
    /// The Secret Service of a Linux desktop, through `secret-tool`.
    SecretService,
}

impl Keychain {
    /// The program that speaks to it.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::MacOs => "security",
            Self::SecretService => "secret-tool",
        }
    }

    pub(super) async fn load(self, host: &Host, kind: Kind) -> Result<Option<String>, CredentialError> {
        let args = match self {
            Self::MacOs => ["find-generic-password", "-s", SERVICE, "-a", kind.name(), "-w"].to_vec(),
            Self::SecretService => ["lookup", "service", SERVICE, "account", kind.name()].to_vec(),
        };
        let exit = self.run(host, Command::new(self.program()).args(args)).await?;
        match exit.status {
            Status::Code(0) => Ok(Some(exit.stdout.text().trim().to_owned())),
            _ if self.found_nothing(&exit) => Ok(None),
            _ => Err(self.refused(&exit)),
        }
    }

    pub(super) async fn save(self, host: &Host, kind: Kind, text: &str) -> Result<(), CredentialError> {
        let name = kind.name();
        let command = match self {
            // Reads its commands, secrets among them, from its input. In hexadecimal nothing needs quoting.
            Self::MacOs => Command::new(self.program()).arg("-i").stdin(format!(
                "add-generic-password -U -s {SERVICE} -a {name} -X {}\n",
                hexadecimal(text)
            )),
            Self::SecretService => Command::new(self.program())
                .args(["store", "--label", &format!("ralph: {kind}")])
                .args(["service", SERVICE, "account", name])
                .stdin(text),
        };
        let exit = self.run(host, command).await?;
        match exit.status {
            Status::Code(0) => Ok(()),
            _ => Err(self.refused(&exit)),
        }
    }

    pub(super) async fn remove(self, host: &Host, kind: Kind) -> Result<(), CredentialError> {
        let args = match self {
            Self::MacOs => ["delete-generic-password", "-s", SERVICE, "-a", kind.name()].to_vec(),
            Self::SecretService => ["clear", "service", SERVICE, "account", kind.name()].to_vec(),
        };
        let exit = self.run(host, Command::new(self.program()).args(args)).await?;
        match exit.status {
            Status::Code(0) => Ok(()),
            _ if self.found_nothing(&exit) => Ok(()),
            _ => Err(self.refused(&exit)),
        }
    }

    async fn run(self, host: &Host, command: Command) -> Result<Exit, CredentialError> {
        let program = self.program();
        let ran = host.run(&command.timeout(PATIENCE), &mut Discard).await;
        ran.map_err(|source| CredentialError::NoKeychain { program, source })
    }

    /// Both programs fail when there is no such entry; one has a code for it, the other then says nothing.
    fn found_nothing(self, exit: &Exit) -> bool {
        match self {
            Self::MacOs => exit.status == Status::Code(44),
            Self::SecretService => {
                exit.status == Status::Code(1) && exit.stderr.total() == 0 && exit.stdout.total() == 0
            }
        }
    }

    fn refused(self, exit: &Exit) -> CredentialError {
        CredentialError::Keychain {
            program: self.program(),
            status: exit.status.to_string(),
            message: exit.stderr.text().trim().to_owned(),
        }
    }
}

fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut text, byte| {
        // A `String` takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
