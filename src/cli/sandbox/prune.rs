//! `ralph sandbox prune`, and `ralph prune-sandboxes`

use std::time::Duration;

use jiff::Timestamp;

use crate::sandbox::{RemovalScope, SandboxListing};

use super::ProviderArgs;
use super::ls::show;
use crate::cli::remove::WITHOUT_DRY_RUN;
use crate::cli::{CliExit, CliResult, Context};
use crate::text::counted;

/// Remove orphaned sandboxes: those whose owner has exited or whose workspace is gone
///
/// Those of other data directories (`RALPH_HOME`) are removed with `--all` only.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct PruneSandboxesArgs {
    #[command(flatten)]
    provider: ProviderArgs,
    /// Only those older than this, as in `90m`, `12h` or `7d`
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    max_age: Option<Duration>,
    /// Those of other data directories too
    #[arg(long)]
    all: bool,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) async fn prune(context: &Context, args: PruneSandboxesArgs) -> CliResult {
    let provider = args.provider.connect(context)?;
    let now = context.surroundings().now();
    let mut listed = provider.list().await?;
    listed.retain(|one| one.is_own || args.all);
    listed.retain(|one| one.standing.is_orphan() && is_old(one, args.max_age, now));
    let mut removed = Vec::new();
    for one in listed {
        if args.dry_run || provider.remove(&one.id, RemovalScope::Orphans).await? {
            removed.push(one);
        }
    }
    if !args.dry_run {
        provider.remove_abandoned_probes().await?;
    }
    show(context, &removed, args.json)?;
    context.ui.say(format_args!(
        "{} {}.",
        if args.dry_run { "Would remove" } else { "Removed" },
        counted(removed.len(), &format!("{} sandbox", provider.name()))
    ));
    let has_more_to_do = args.dry_run && !removed.is_empty();
    context.ui.next(if has_more_to_do {
        WITHOUT_DRY_RUN
    } else {
        "`ralph sandbox ls` shows the sandboxes that are left"
    });
    Ok(CliExit::Success)
}

/// A sandbox of unknown age counts as old.
fn is_old(one: &SandboxListing, max_age: Option<Duration>, now: Timestamp) -> bool {
    match (max_age, one.created) {
        (Some(age), Some(created)) => now.duration_since(created).unsigned_abs() > age,
        (None, _) | (_, None) => true,
    }
}

/// Parses a number and `s`, `m`, `h`, `d` or `w`.
pub(in crate::cli) fn parse_age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not an age: write a number and s, m, h, d or w, as in 7d");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let count: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = count.checked_mul(seconds).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0s", Some(0))]
    #[case("90m", Some(5400))]
    #[case("7d", Some(604_800))]
    #[case("2w", Some(1_209_600))]
    #[case("7", None)]
    #[case("d", None)]
    #[case("-1d", None)]
    #[case("1y", None)]
    #[case("99999999999999999999d", None)]
    fn an_age_is_a_number_and_a_unit(#[case] text: &str, #[case] seconds: Option<u64>) {
        let age = parse_age(text).ok();
        assert_eq!(age.map(|age| age.as_secs()), seconds);
    }
}
