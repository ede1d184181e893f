//! `ralph token store`

use std::io::{IsTerminal, Read};

use jiff::Timestamp;
use zeroize::Zeroizing;

use crate::assembly::credentials::vault;
use crate::credential::{self, CredentialKind, CredentialLocation, CredentialSource, MalformedCredential};
use crate::exec::Command;
use crate::gateway::broker::{self, ModelUpstream, VerifyError};
use crate::secret::Secret;

use super::super::Context;
use super::super::credentials::{Which, describe};
use super::super::error::{CliError, Exit, io};

/// The longest thing that is read as a credential.
const LONGEST: u64 = 64 * 1024;

/// Store a credential, from standard input or, on a terminal, from `claude setup-token`
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct StoreArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    against: Against,
    /// Keep it in a file that only you can read, although there is a keychain
    #[arg(long)]
    file: bool,
}

/// Options for asking the service.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Against {
    /// Ask the service whether it takes the credential
    #[arg(long)]
    verify: bool,
    /// Ask there in place of the service's own address
    #[arg(long, value_name = "URL", requires = "verify")]
    base_url: Option<String>,
}

impl Against {
    pub(super) fn is_wanted(&self) -> bool {
        self.verify
    }

    pub(super) fn base(&self) -> Option<&str> {
        self.base_url.as_deref()
    }
}

pub(in crate::cli) async fn store(context: &Context, args: StoreArgs) -> Result<Exit, CliError> {
    let (config, kind) = args.which.kind(context)?;
    let text = read(context, kind).await?;
    let credential = credential::parse(kind, &text, Timestamp::now()).map_err(|error| {
        let actual = match error {
            MalformedCredential::Prefix { actual, .. } => actual.unwrap_or(kind),
            _ => kind,
        };
        let hint = format!(
            "nothing was stored; to store {actual}, run `{}`",
            actual.store_command()
        );
        CliError::usage(error.to_string()).hint(hint)
    })?;
    if args.against.is_wanted() {
        let own =
            (kind == CredentialKind::GatewayKey).then_some(config.settings.model_endpoint.base_url.as_str());
        let source = CredentialSource::Fixed(credential.token.clone());
        verify(&ModelUpstream::new(kind, source, args.against.base().or(own))?).await?;
    }
    let vault = vault(&context.assembly)?;
    let place = if args.file {
        CredentialLocation::File
    } else {
        vault.default_location()
    };
    vault.store(kind, &credential, place).await?;
    context
        .ui
        .say(format_args!("Stored {kind} in {}.", describe(place)));
    Ok(Exit::Success)
}

/// Asks the service whether it takes the credential.
pub(super) async fn verify(upstream: &ModelUpstream) -> Result<(), CliError> {
    let http = broker::client(Vec::new())?;
    upstream.verify(&http).await.map_err(|error| {
        let hint = match &error {
            VerifyError::Refused { .. } => "get a new one from the service and store that",
            VerifyError::NoCredential(_)
            | VerifyError::NoService { .. }
            | VerifyError::UnexpectedStatus { .. }
            | VerifyError::Unreachable(_) => "without `--verify` nobody is asked",
        };
        CliError::of(Exit::Failure, &error).hint(hint)
    })
}

/// The credential as it is handed over: never as an argument, which every user of the machine could read.
async fn read(context: &Context, kind: CredentialKind) -> Result<Zeroizing<String>, CliError> {
    let by_hand = std::io::stdin().is_terminal();
    if by_hand
        && kind == CredentialKind::AnthropicOAuth
        && context.surroundings().host().has_program("claude")
    {
        return set_up(context)
            .await
            .map(|token| Zeroizing::new(token.expose().to_owned()));
    }
    if by_hand {
        context
            .ui
            .say(format_args!("Paste {kind}, then press Enter and Ctrl-D:"));
    }
    let mut text = Zeroizing::new(String::new());
    std::io::stdin()
        .take(LONGEST)
        .read_to_string(&mut text)
        .map_err(|error| CliError::runtime(format!("cannot read from standard input: {error}")))?;
    Ok(text)
}

/// Lets `claude setup-token` speak to the user, and picks up the token that it shows.
async fn set_up(context: &Context) -> Result<Secret, CliError> {
    let dir =
        tempfile::tempdir().map_err(|error| CliError::runtime(format!("no temporary directory: {error}")))?;
    let shown = dir.path().join("shown");
    let name = shown.display().to_string();
    // `script` gives the program a terminal and writes down what it shows; the directory is ours alone.
    let args = if cfg!(target_os = "macos") {
        vec!["-q", &name, "claude", "setup-token"]
    } else {
        vec!["-q", "-e", "-c", "claude setup-token", &name]
    };
    let command = Command::new("script").args(args);
    let status = context
        .surroundings()
        .session_host()
        .run_on_terminal(&command)
        .await;
    let status =
        status.map_err(|error| CliError::runtime(format!("cannot start `claude setup-token`: {error}")))?;
    if !status.success() {
        return Err(CliError::runtime(format!(
            "`claude setup-token` ended with {status}"
        )));
    }
    let text = std::fs::read(&shown).map_err(io("read", &shown))?;
    let token = credential::find_setup_token(&String::from_utf8_lossy(&text));
    token.ok_or_else(|| {
        CliError::runtime("`claude setup-token` showed no token")
            .hint("paste it yourself: `ralph token store --auth oauth < FILE`")
    })
}
