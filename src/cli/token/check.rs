//! `ralph token check`

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::credentials::{connect_upstream, from_environment, open_vault};
use crate::credential::{AuthMethod, Credential, CredentialKind, LoginError};

use super::super::credentials::{CredentialArgs, describe_location};
use super::store::{VerifyArgs, verify};
use super::{not_usable, options};
use crate::cli::{CliExit, CliResult, Context};
use crate::text::counted;

/// Show whether a credential is stored and when it expires; exits with 1 when it is missing or expired
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CheckTokenArgs {
    #[command(flatten)]
    credential: CredentialArgs,
    #[command(flatten)]
    verify: VerifyArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct TokenStatus {
    credential: &'static str,
    auth: AuthMethod,
    place: &'static str,
    expires: Option<Timestamp>,
    days_left: Option<i64>,
    renewed_by_itself: bool,
}

pub(in crate::cli) async fn check(context: &Context, args: CheckTokenArgs) -> CliResult {
    let (config, kind) = args.credential.kind(context)?;
    let now = context.surroundings().now();
    let checked = match (
        open_vault(&context.assembly)?.load(kind).await?,
        from_environment(&config, kind),
    ) {
        (Some((credential, place)), _) => TokenStatus::new(kind, &credential, describe_location(place), now),
        (None, Some(secret)) => TokenStatus::new(kind, &Credential::new(secret), "the environment", now),
        (None, None) => return Err(not_usable(LoginError::Missing(kind), kind)),
    };
    if checked.expires.is_some_and(|end| end <= now) && !checked.renewed_by_itself {
        return Err(not_usable(LoginError::Expired(kind), kind));
    }
    if args.verify.verify {
        let base = args.verify.base_url.as_deref();
        verify(&connect_upstream(&context.assembly, &config, kind, base).await?).await?;
    }
    context.ui.report(args.json, &checked, checked.describe(kind))?;
    if !args.verify.verify {
        context.ui.next(format_args!(
            "`ralph token check{} --verify` asks the service whether it accepts it",
            options(kind)
        ));
    }
    Ok(CliExit::Success)
}

impl TokenStatus {
    fn new(kind: CredentialKind, credential: &Credential, place: &'static str, now: Timestamp) -> Self {
        let days_left = credential
            .expires
            .map(|end| end.duration_since(now).as_hours() / 24);
        Self {
            credential: kind.name,
            auth: kind.auth,
            place,
            expires: credential.expires,
            days_left,
            renewed_by_itself: credential.refresh.is_some(),
        }
    }

    fn describe(&self, kind: CredentialKind) -> String {
        let left = match (self.renewed_by_itself, self.days_left) {
            (true, _) => "it is renewed automatically".to_owned(),
            (false, Some(days)) => format!("{} left", counted(days, "day")),
            (false, None) => "it has no expiry date".to_owned(),
        };
        format!("{kind} is in {}: {left}", self.place)
    }
}
