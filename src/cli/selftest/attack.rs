//! `ralph selftest --escapes`

use crate::sandbox::escapes::{EscapesError, Matrix, Verdict, escapes};
use crate::sandbox::{Provider, SandboxSpec};

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::Form;

/// Makes a sandbox, attacks it, and tells what holds.
pub(super) async fn attack(
    context: &Context,
    provider: &dyn Provider,
    spec: SandboxSpec,
    form: Form,
) -> Result<Exit, CliError> {
    let matrix = escapes(provider, spec).await?;
    match form {
        Form::Json => context.ui.json(&matrix)?,
        Form::Lines => show(context, &matrix)?,
    }
    conclude(&matrix)
}

fn show(context: &Context, matrix: &Matrix) -> Result<(), CliError> {
    for tried in &matrix.cases {
        let (verdict, class, name) = (tried.verdict, tried.class, &tried.name);
        let told = match verdict {
            Verdict::Enforced => format!("seen: {}", tried.seen),
            Verdict::Open | Verdict::NotEnforceable => format!("seen: {}; {}", tried.seen, tried.reason),
        };
        context
            .ui
            .data(format_args!("{verdict:<15}  {class:<12}  {name} ({told})"))?;
    }
    let counts = [Verdict::Enforced, Verdict::Open, Verdict::NotEnforceable]
        .map(|verdict| format!("{} {verdict}", matrix.count(verdict)));
    context.ui.say(counts.join(", "));
    Ok(())
}

fn conclude(matrix: &Matrix) -> Result<Exit, CliError> {
    match matrix.count(Verdict::Open) {
        0 => Ok(Exit::Success),
        open => Err(CliError::runtime(format!(
            "{open} of {} attacks are not held by the `{}` provider",
            matrix.cases.len(),
            matrix.provider
        ))
        .hint("run nothing that you do not trust in such a sandbox, and please report what was seen")),
    }
}

impl From<EscapesError> for CliError {
    fn from(error: EscapesError) -> Self {
        Self::of(Exit::Failure, &error).maybe_hint(error.hint())
    }
}
