//! `ralph selftest --escapes`

use crate::assembly::AssemblyErrorKind;
use crate::sandbox::escapes::{AttackVerdict, EscapeError, EscapeReport, escapes};
use crate::sandbox::{Provider, SandboxSpec};

use super::super::Context;
use super::super::error::{CliError, CliExit};

/// Creates a sandbox, attacks it from inside, and shows what was blocked.
pub(super) async fn attack(
    context: &Context,
    provider: &dyn Provider,
    spec: SandboxSpec,
    json: bool,
) -> Result<CliExit, CliError> {
    let report = escapes(provider, spec).await?;
    if json {
        context.ui.json(&report)?;
    } else {
        show(context, &report)?;
    }
    conclude(&report)
}

fn show(context: &Context, report: &EscapeReport) -> Result<(), CliError> {
    for tried in &report.cases {
        let (verdict, class, name) = (tried.verdict, tried.class, &tried.name);
        let detail = match verdict {
            AttackVerdict::Enforced => format!("seen: {}", tried.seen),
            AttackVerdict::Open | AttackVerdict::NotEnforceable => {
                format!("seen: {}; {}", tried.seen, tried.reason)
            }
        };
        context
            .ui
            .data(format_args!("{verdict:<15}  {class:<12}  {name} ({detail})"))?;
    }
    let counts = [
        AttackVerdict::Enforced,
        AttackVerdict::Open,
        AttackVerdict::NotEnforceable,
    ]
    .map(|verdict| format!("{} {verdict}", report.count(verdict)));
    context.ui.say(counts.join(", "));
    Ok(())
}

fn conclude(report: &EscapeReport) -> Result<CliExit, CliError> {
    match report.count(AttackVerdict::Open) {
        0 => Ok(CliExit::Success),
        open => Err(CliError::runtime(format!(
            "{open} of {} attacks are not held by the `{}` provider",
            report.cases.len(),
            report.provider
        ))
        .with_hint("run nothing that you do not trust in such a sandbox, and please report what was seen")),
    }
}

impl From<EscapeError> for CliError {
    fn from(error: EscapeError) -> Self {
        Self::from_error(AssemblyErrorKind::Runtime, &error).with_hint_of(error.hint())
    }
}
