//! `ralph api-token`

use std::time::Duration;

use clap::Subcommand;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::{LOGIN_LINK, new_secret};
use crate::store::{ApiScope, ApiSecret, ApiSecretKind, Store};

use super::submit::open_store;
use super::ui::align_columns;
use super::{CliError, CliExit, CliResult, Context, ErrorTopic};

/// Create, list and revoke the tokens of the API
#[derive(Debug, Subcommand)]
pub(super) enum ApiTokenCommand {
    /// Create a token and print it; it cannot be shown again
    Create(CreateApiTokenArgs),
    /// List the tokens, without their values
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a token and end the login sessions of its name
    Revoke {
        /// Its name
        name: String,
    },
    /// Print a secret that logs a browser in, once, within 15 minutes
    Login(LoginArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct CreateApiTokenArgs {
    /// Its name, which is recorded with what it is used for
    #[arg(value_parser = parse_name)]
    name: String,
    /// What it allows: read, steer (also ask something of runs) or admin (also create and remove)
    #[arg(long, default_value = "read")]
    scope: ApiScope,
    /// Days until it expires
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,
}

#[derive(Debug, clap::Args)]
pub(super) struct LoginArgs {
    /// The name that is recorded with what the session is used for
    #[arg(long, default_value = "browser", value_parser = parse_name)]
    name: String,
    /// What the session allows: read, steer or admin
    #[arg(long, default_value = "admin")]
    scope: ApiScope,
}

/// A token in the output.
#[derive(Serialize, JsonSchema)]
pub(super) struct ApiTokenRow {
    name: String,
    scope: ApiScope,
    created: String,
    expires: String,
    expired: bool,
}

pub(super) async fn api_token(context: &Context, command: ApiTokenCommand) -> CliResult {
    let store = open_store(context).await?;
    let done = match command {
        ApiTokenCommand::Create(args) => create(context, &store, &args).await,
        ApiTokenCommand::List { json } => list(context, &store, json).await,
        ApiTokenCommand::Revoke { name } => revoke(context, &store, &name).await,
        ApiTokenCommand::Login(args) => login(context, &store, &args).await,
    };
    store.close().await;
    done
}

async fn create(context: &Context, store: &Store, args: &CreateApiTokenArgs) -> CliResult {
    let secret = new_secret().map_err(CliError::runtime)?;
    let lifetime = Duration::from_secs(args.days * 24 * 60 * 60);
    let kind = ApiSecretKind::Token;
    if !store
        .add_api_secret(&secret, kind, &args.name, args.scope, lifetime)
        .await?
    {
        let name = &args.name;
        return Err(CliError::usage(format!("there is a token `{name}` already"))
            .with_topic(ErrorTopic::Service)
            .with_hint(format!(
                "choose another name, or `ralph api-token revoke {name}` first"
            )));
    }
    context.ui.data(secret.expose())?;
    context.ui.say(format_args!(
        "Keep it: it is not shown again. It expires in {} days.",
        args.days
    ));
    context
        .ui
        .next("send it to `ralph serve` as `Authorization: Bearer TOKEN`");
    Ok(CliExit::Success)
}

async fn list(context: &Context, store: &Store, json: bool) -> CliResult {
    let now = context.surroundings().now();
    let rows: Vec<ApiTokenRow> = store
        .api_tokens()
        .await?
        .iter()
        .map(|token| row(token, now))
        .collect();
    if rows.is_empty() && !json {
        context.ui.say("There are no API tokens.");
        context.ui.next("`ralph api-token create NAME` creates one");
        return Ok(CliExit::Success);
    }
    let mut cells = vec![["NAME", "SCOPE", "CREATED", "EXPIRES"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let expires = if row.expired {
            format!("{} (expired)", row.expires)
        } else {
            row.expires.clone()
        };
        [
            row.name.clone(),
            row.scope.name().to_owned(),
            row.created.clone(),
            expires,
        ]
    }));
    context.ui.report(json, &rows, align_columns(&cells))?;
    context.ui.next("`ralph api-token revoke NAME` removes one");
    Ok(CliExit::Success)
}

fn row(token: &ApiSecret, now: Timestamp) -> ApiTokenRow {
    ApiTokenRow {
        name: token.name.clone(),
        scope: token.scope,
        created: token.created.to_string(),
        expires: token.expires.to_string(),
        expired: token.expires <= now,
    }
}

async fn revoke(context: &Context, store: &Store, name: &str) -> CliResult {
    if !store.revoke_api_token(name).await? {
        return Err(CliError::usage(format!("there is no token `{name}`"))
            .with_topic(ErrorTopic::Service)
            .with_hint("`ralph api-token list` lists the tokens"));
    }
    context.ui.say(format_args!("Revoked {name}."));
    context
        .ui
        .next("`ralph api-token list` shows the tokens that are left");
    Ok(CliExit::Success)
}

async fn login(context: &Context, store: &Store, args: &LoginArgs) -> CliResult {
    let secret = new_secret().map_err(CliError::runtime)?;
    let kind = ApiSecretKind::Login;
    store
        .add_api_secret(&secret, kind, &args.name, args.scope, LOGIN_LINK)
        .await?;
    context.ui.data(secret.expose())?;
    context.ui.say("It works once, within 15 minutes.");
    context.ui.next("`POST /api/login` exchanges it for a session");
    Ok(CliExit::Success)
}

/// Names appear in logs and prompts.
fn parse_name(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if (1..=64).contains(&text.len()) && text.chars().all(is_allowed) {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 64 letters, digits, `-`, `_`, `.` or `@`".to_owned())
    }
}
