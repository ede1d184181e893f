//! `ralph token store`

use std::io::{IsTerminal, Read};

use zeroize::Zeroizing;

use crate::assembly::AssemblyErrorKind;
use crate::assembly::credentials::open_vault;
use crate::credential::{self, CredentialKind, CredentialLocation, CredentialSource, MalformedCredential};
use crate::exec::Command;
use crate::gateway::broker::{self, ModelUpstream, VerifyError};
use crate::secret::Secret;

use super::super::credentials::{CredentialArgs, describe_location};
use super::store_command;
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic, activity, io_error, temp_dir};

/// The most bytes that are read as a credential.
const MAX_BYTES: u64 = 64 * 1024;

/// Store a credential, from standard input or, on a terminal, from `claude setup-token`
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct StoreTokenArgs {
    #[command(flatten)]
    credential: CredentialArgs,
    #[command(flatten)]
    verify: VerifyArgs,
    /// Store it in a file that only you can read, not in the keychain
    #[arg(long)]
    file: bool,
}

/// Options for verifying a credential.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct VerifyArgs {
    /// Ask the service whether it accepts the credential
    #[arg(long)]
    pub(super) verify: bool,
    /// Ask this address instead of the service's own
    #[arg(long, value_name = "URL", requires = "verify")]
    pub(super) base_url: Option<String>,
}

pub(in crate::cli) async fn store(context: &Context, args: StoreTokenArgs) -> CliResult {
    let (config, kind) = args.credential.kind(context)?;
    let text = read(context, kind).await?;
    let credential = credential::parse(kind, &text, context.surroundings().now()).map_err(|error| {
        let actual = match error {
            MalformedCredential::Prefix { actual, .. } => actual.unwrap_or(kind),
            _ => kind,
        };
        let hint = format!(
            "nothing was stored; to store {actual}, run `{}`",
            store_command(actual)
        );
        CliError::usage(error.to_string())
            .with_topic(ErrorTopic::Credentials)
            .with_hint(hint)
    })?;
    if args.verify.verify {
        let own = config.settings.model_endpoint.base_url.as_deref();
        let own = own.filter(|_| kind == crate::model::GATEWAY_KEY);
        let source = CredentialSource::Fixed(credential.token.clone());
        verify(&ModelUpstream::new(
            kind,
            source,
            args.verify.base_url.as_deref().or(own),
        )?)
        .await?;
    }
    let vault = open_vault(&context.assembly)?;
    let place = if args.file {
        CredentialLocation::File
    } else {
        vault.default_location()
    };
    vault.store(kind, &credential, place).await?;
    context
        .ui
        .say(format_args!("Stored {kind} in {}.", describe_location(place)));
    context
        .ui
        .next("`ralph doctor env` shows what a run would use now");
    Ok(CliExit::Success)
}

/// Asks the service whether it accepts the credential.
pub(super) async fn verify(upstream: &ModelUpstream) -> Result<(), CliError> {
    activity::begin("asking the service whether it accepts the credential");
    let http = broker::client(Vec::new())?;
    upstream.verify(&http).await.map_err(|error| {
        let hint = match &error {
            VerifyError::Refused { .. } | VerifyError::Forbidden { .. } | VerifyError::InvalidCredential => {
                "get a new one from the service and store that"
            }
            VerifyError::NoCredential(_)
            | VerifyError::NoService { .. }
            | VerifyError::UnexpectedStatus { .. }
            | VerifyError::Unreachable(_) => "without `--verify` the credential is stored unchecked",
        };
        CliError::from_error(AssemblyErrorKind::Runtime, ErrorTopic::Credentials, &error).with_hint(hint)
    })
}

/// Reads the credential from stdin. It is never an argument, which every user of the host could read.
async fn read(context: &Context, kind: CredentialKind) -> Result<Zeroizing<String>, CliError> {
    let by_hand = std::io::stdin().is_terminal();
    if by_hand && kind == crate::model::ANTHROPIC_LOGIN && context.surroundings().host().has_program("claude")
    {
        return run_setup_token(context)
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
        .take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| {
            CliError::runtime(format!("cannot read from standard input: {error}"))
                .with_topic(ErrorTopic::Credentials)
        })?;
    Ok(text)
}

/// Runs `claude setup-token` on the terminal and finds the token that it prints.
async fn run_setup_token(context: &Context) -> Result<Secret, CliError> {
    let dir = temp_dir()?;
    let shown = dir.path().join("shown");
    let name = shown.display().to_string();
    // `script` gives the program a terminal and records what it prints. The directory is private.
    let args = if cfg!(target_os = "macos") {
        vec!["-q", &name, "claude", "setup-token"]
    } else {
        vec!["-q", "-e", "-c", "claude setup-token", &name]
    };
    let command = Command::new("script").args(args);
    let status = context
        .surroundings()
        .desktop_host()
        .run_on_terminal(&command)
        .await;
    let status = status.map_err(|error| {
        CliError::runtime(format!("cannot start `claude setup-token`: {error}"))
            .with_topic(ErrorTopic::Credentials)
    })?;
    if !status.success() {
        return Err(
            CliError::runtime(format!("`claude setup-token` ended with {status}"))
                .with_topic(ErrorTopic::Credentials),
        );
    }
    let text = std::fs::read(&shown).map_err(io_error("read", &shown))?;
    let token = credential::find_setup_token(&String::from_utf8_lossy(&text));
    token.ok_or_else(|| {
        CliError::runtime("`claude setup-token` printed no token")
            .with_topic(ErrorTopic::Credentials)
            .with_hint("paste it yourself: `ralph token store --auth oauth < FILE`")
    })
}
