//! `ralph selftest --escapes`

use std::time::Duration;

use crate::assembly::AssemblyErrorKind;
use crate::id::RunId;
use crate::sandbox::escapes::{AttackClass, AttackVerdict, escapes};
use crate::sandbox::{Isolation, Provider, SandboxErrorKind, SandboxSpec};
use crate::text::counted;

use super::hand_back;
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic};

/// Creates a sandbox, attacks it from inside, and shows what was blocked.
pub(super) async fn attack(
    context: &Context,
    provider: &dyn Provider,
    spec: SandboxSpec,
    variations: Option<Duration>,
    json: bool,
) -> CliResult {
    let clock = context.surroundings().clock();
    let clone_spec = SandboxSpec {
        run: RunId::random(),
        ..spec.clone()
    };
    let mut report = escapes(provider, spec, clock, variations)
        .await
        .map_err(|error| {
            CliError::from_error(AssemblyErrorKind::Runtime, ErrorTopic::Sandbox, &error)
                .with_hint_of(error.hint())
        })?;
    // Without any isolation, a command in the sandbox runs on the host.
    if provider.capabilities().isolation != Isolation::DirectoryOnly {
        let sandbox = match provider.create(&clone_spec).await {
            // The report says so already.
            Err(error) if error.kind() == SandboxErrorKind::Unsupported => None,
            created => Some(created?),
        };
        if let Some(sandbox) = sandbox {
            let results = hand_back::attack(context.surroundings().host(), sandbox.as_ref()).await;
            sandbox.close().await?;
            if let Some(results) = results? {
                report.replace(AttackClass::HandBack, results);
            }
        }
    }
    let lines = report.cases.iter().map(|tried| {
        let (verdict, class, name, seen) = (tried.verdict, tried.class, &tried.name, &tried.seen);
        let reason = match verdict {
            AttackVerdict::Enforced => String::new(),
            AttackVerdict::Open | AttackVerdict::NotEnforceable | AttackVerdict::NotTried => {
                format!("; {}", tried.reason)
            }
        };
        format!("{verdict:<15}  {class:<12}  {name} (seen: {seen}{reason})")
    });
    let lines: Vec<String> = lines.collect();
    context.ui.report(json, &report, lines.join("\n"))?;
    if !json {
        let counts = [
            AttackVerdict::Enforced,
            AttackVerdict::Open,
            AttackVerdict::NotEnforceable,
            AttackVerdict::NotTried,
        ]
        .map(|verdict| format!("{} {verdict}", report.count(verdict)));
        context.ui.say(counts.join(", "));
    }
    match report.count(AttackVerdict::Open) {
        0 => Ok(CliExit::Success),
        open => Err(CliError::runtime(format!(
            "the `{}` provider does not hold {open} of {}",
            report.provider,
            counted(report.cases.len(), "attack")
        ))
        .with_topic(ErrorTopic::Sandbox)
        .with_hint("run nothing that you do not trust in such a sandbox, and please report what was seen")),
    }
}
