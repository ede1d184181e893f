//! The system keychain, through the program that comes with it. No secret is passed as an argument, because every user
//! of the host can read those.

use std::fmt::Write;

use crate::credential::{CredentialError, CredentialKind};
use crate::exec::{Command, Discard, Exit, ExitStatus, Host};

/// The service name of all entries.
const SERVICE: &str = "ralph";
/// Long enough for the user to answer a prompt of the keychain.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

/// The longest line in bytes, with its newline, that `security -i` reads as one command. It cuts off the rest.
const SECURITY_LINE: usize = 4095;

/// A system keychain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keychain {
    /// The keychain of macOS, through `security`.
    MacOs,
    /// The Secret Service of a Linux desktop, through `secret-tool`.
    SecretService,
}

impl Keychain {
    /// The program that accesses it.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::MacOs => "security",
            Self::SecretService => "secret-tool",
        }
    }

    pub(super) async fn load(
        self,
        host: &Host,
        kind: CredentialKind,
    ) -> Result<Option<String>, CredentialError> {
        let command = match self {
            Self::MacOs => self.entry_command("find-generic-password", kind).arg("-w"),
            Self::SecretService => self.entry_command("lookup", kind),
        };
        let exit = self.run(host, command).await?;
        let found = self.has_found(&exit)?;
        Ok(found.then(|| exit.stdout.text().trim().to_owned()))
    }

    pub(super) async fn save(
        self,
        host: &Host,
        kind: CredentialKind,
        text: &str,
    ) -> Result<(), CredentialError> {
        let name = kind.name;
        let command = match self {
            // `security -i` reads commands from its input. Hexadecimal needs no quoting.
            Self::MacOs => {
                let line = format!(
                    "add-generic-password -U -s {SERVICE} -a {name} -X {}\n",
                    hexadecimal(text)
                );
                if line.len() > SECURITY_LINE {
                    return Err(too_long(kind, text.len()));
                }
                Command::new(self.program()).arg("-i").stdin(line)
            }
            Self::SecretService => Command::new(self.program())
                .args(["store", "--label", &format!("ralph: {kind}")])
                .args(["service", SERVICE, "account", name])
                .stdin(text),
        };
        let exit = self.run(host, command).await?;
        exit.success().then_some(()).ok_or_else(|| self.failure(&exit))
    }

    pub(super) async fn remove(self, host: &Host, kind: CredentialKind) -> Result<(), CredentialError> {
        let verb = match self {
            Self::MacOs => "delete-generic-password",
            Self::SecretService => "clear",
        };
        let exit = self.run(host, self.entry_command(verb, kind)).await?;
        self.has_found(&exit).map(drop)
    }

    fn entry_command(self, verb: &str, kind: CredentialKind) -> Command {
        let [service, account] = match self {
            Self::MacOs => ["-s", "-a"],
            Self::SecretService => ["service", "account"],
        };
        Command::new(self.program()).args([verb, service, SERVICE, account, kind.name])
    }

    async fn run(self, host: &Host, command: Command) -> Result<Exit, CredentialError> {
        let program = self.program();
        let ran = host.run(&command.timeout(TIMEOUT), &mut Discard).await;
        ran.map_err(|error| keychain_error(format!("cannot start `{program}`")).with_source(error))
    }

    /// Whether the command found the entry. Without one `security` exits with 44, and `secret-tool` with 1 and no output.
    fn has_found(self, exit: &Exit) -> Result<bool, CredentialError> {
        let is_silent = exit.stderr.total() == 0 && exit.stdout.total() == 0;
        match (self, exit.status) {
            (_, ExitStatus::Code(0)) => Ok(true),
            (Self::MacOs, ExitStatus::Code(44)) => Ok(false),
            (Self::SecretService, ExitStatus::Code(1)) if is_silent => Ok(false),
            _ => Err(self.failure(exit)),
        }
    }

    fn failure(self, exit: &Exit) -> CredentialError {
        let (program, status) = (self.program(), exit.status);
        let message = exit.stderr.text();
        let message = message.trim();
        keychain_error(format!(
            "the keychain command `{program}` failed ({status}): {message}"
        ))
    }
}

fn keychain_error(message: String) -> CredentialError {
    CredentialError::new(message).with_hint("unlock the keychain, or let `ralph token store` use a file")
}

fn too_long(kind: CredentialKind, length: usize) -> CredentialError {
    CredentialError::new(format!(
        "{kind} has {length} bytes, too many for the macOS keychain"
    ))
    .with_hint("store it in a file: `ralph token store --file`")
}

fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
