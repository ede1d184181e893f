//! The signed statement about complete evidence, kept as a note of the commit.

use crate::digest::Digest;
use crate::evidence::{
    self, EvidenceAgent, EvidenceCommand, EvidenceImage, EvidencePredicate, EvidenceStatement, NOTES_REF,
    PolicyDigest,
};
use crate::state::{CheckResult, IterationRecord, StateError, standing_records};
use crate::task::SignatureFact;
use crate::text::error_chain;

use super::RunError;
use super::pull_request::{agents, image, repeated};
use super::run::Run;

/// Signs what the evidence of this record is, before the pull request refers to it. Doing it again adds nothing: the
/// statement has no time of its own.
pub(super) async fn sign_evidence(run: &Run<'_>, record: &IterationRecord) -> Result<(), RunError> {
    let parts = run.inputs.parts;
    let facts = run.inputs.dir.facts();
    let statement = EvidenceStatement::new(record.tip.clone(), &facts.branch, predicate(run, record));
    let statement = parts
        .redactor
        .redact_json(statement)
        .map_err(StateError::encode("evidence statement"))?;
    let now = parts.clock.now();
    evidence::attach(&run.workplace.repo, &statement, &parts.evidence_key, now).await?;
    Ok(())
}

/// Gives the forge's server the signed statement, before the pull request says where it is. A server that refuses it does not
/// stop the run.
pub(super) async fn share_evidence(run: &mut Run<'_>, record: &IterationRecord) {
    let forge = &run.inputs.parts.forge;
    match forge.share_note(NOTES_REF, &record.tip).await {
        Ok(true) => run.shared_evidence = Some(record.tip.clone()),
        Ok(false) => {}
        Err(error) => {
            let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
            run.inputs.reporter.warn(format!(
                "the signed evidence stays on this host, as a note in `{NOTES_REF}`: {}{hint}",
                error_chain(&error)
            ));
        }
    }
}

/// What the pull request says about it.
pub(super) fn signature_fact(run: &Run<'_>, record: &IterationRecord) -> SignatureFact {
    let is_shared = run.shared_evidence.as_ref() == Some(&record.tip);
    let fetch = if is_shared {
        format!("git fetch origin {NOTES_REF}:{NOTES_REF} && ")
    } else {
        String::new()
    };
    SignatureFact {
        key: run.inputs.parts.evidence_key.public().id().to_string(),
        command: format!("{fetch}ralph evidence verify {}", record.tip),
        is_shared,
    }
}

fn predicate(run: &Run<'_>, record: &IterationRecord) -> EvidencePredicate {
    let (inputs, progress) = (run.inputs, &run.progress);
    let facts = inputs.dir.facts();
    let spent = progress.ledger();
    let policy = inputs.spec.egress.added.widen(inputs.spec.network.clone());
    let records = standing_records(progress.journal.lines());
    let commands = repeated(record).into_iter();
    let agents = agents(&records).into_iter().map(|agent| EvidenceAgent {
        name: agent.name,
        model: agent.model,
    });
    EvidencePredicate {
        ralph: env!("CARGO_PKG_VERSION").to_owned(),
        task: run.task.frontmatter.task_id.to_string(),
        run: facts.id.to_string(),
        base: facts.base.clone(),
        commands: commands.map(|(check, runs)| command(check, runs)).collect(),
        apart: record.evidence_apart,
        shared: record.evidence_shares.clone(),
        provider: inputs.parts.provider.name().to_owned(),
        image: image(&run.workplace).map(|image| EvidenceImage {
            name: image.name,
            digest: Some(image.digest).filter(|digest| !digest.is_empty()),
        }),
        network: PolicyDigest {
            mode: policy.mode().name().to_owned(),
            digest: Digest::sha256_fields(policy.lines()),
        },
        agents: agents.collect(),
        tokens: spent.tokens,
        cost_usd: (spent.unpriced_calls == 0).then(|| spent.cost.dollars()),
    }
}

fn command(check: &CheckResult, runs: u32) -> EvidenceCommand {
    EvidenceCommand {
        command: check.command.clone(),
        exit: check.code,
        started: check.started,
        seconds: check.seconds,
        commit: check.commit.clone(),
        runs,
    }
}
