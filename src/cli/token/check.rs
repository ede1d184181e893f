//! `ralph token check`

use jiff::Timestamp;
use serde::Serialize;

use crate::assembly::credentials::{from_environment, upstream, vault};
use crate::credential::{AuthMethod, Credential, CredentialKind, LoginError};

use super::super::Context;
use super::super::credentials::{Which, describe};
use super::super::error::{CliError, Exit};
use super::store::{Against, verify};

/// Say whether a credential is stored and how long it lasts; exits with 1 when it is missing or has expired
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CheckArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    against: Against,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is known of a credential.
#[derive(Serialize)]
struct Checked {
    credential: &'static str,
    auth: AuthMethod,
    place: &'static str,
    expires: Option<Timestamp>,
    days_left: Option<i64>,
    renewed_by_itself: bool,
}

pub(in crate::cli) async fn check(context: &Context, args: CheckArgs) -> Result<Exit, CliError> {
    let (config, kind) = args.which.kind(context)?;
    let now = Timestamp::now();
    let checked = match (
        vault(&context.assembly)?.load(kind).await?,
        from_environment(&config, kind),
    ) {
        (Some((credential, place)), _) => Checked::new(kind, &credential, describe(place), now),
        (None, Some(secret)) => Checked::new(kind, &Credential::new(secret), "the environment", now),
        (None, None) => return Err(LoginError::Missing(kind).into()),
    };
    if checked.expires.is_some_and(|end| end <= now) && !checked.renewed_by_itself {
        return Err(LoginError::Expired(kind).into());
    }
    if args.against.is_wanted() {
        verify(&upstream(&context.assembly, &config, kind, args.against.base()).await?).await?;
    }
    if args.json {
        context.ui.json(&checked)?;
    } else {
        context.ui.data(checked.for_people(kind))?;
    }
    Ok(Exit::Success)
}

impl Checked {
    fn new(kind: CredentialKind, credential: &Credential, place: &'static str, now: Timestamp) -> Self {
        let days_left = credential
            .expires
            .map(|end| end.duration_since(now).as_hours() / 24);
        Self {
            credential: kind.name(),
            auth: kind.auth(),
            place,
            expires: credential.expires,
            days_left,
            renewed_by_itself: credential.refresh.is_some(),
        }
    }

    fn for_people(&self, kind: CredentialKind) -> String {
        let left = match (self.renewed_by_itself, self.days_left) {
            (true, _) => "it is renewed by itself".to_owned(),
            (false, Some(days)) => format!("{days} days left"),
            (false, None) => "it does not say when it ends".to_owned(),
        };
        format!("{kind} is in {}: {left}", self.place)
    }
}
