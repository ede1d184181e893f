//! `ralph evidence`

use std::fs;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::{
    self, BaseKeys, EvidenceCommand, EvidencePredicate, EvidenceRefusal, EvidenceStatement, NOTES_REF,
    SigningKey, TrustedKey, VerifiedStatement, VerifyingKey, envelopes, keys_on_base, read_note,
};
use crate::id::ObjectId;
use crate::scm::{EVIDENCE_KEYS_DIR, Repository};
use crate::text::{counted, error_chain, one_line};

use super::{CliError, CliExit, CliResult, Context, ErrorTopic};

/// Show and verify the signed evidence for a commit
#[derive(Debug, Subcommand)]
pub(super) enum EvidenceSubcommand {
    /// Print the evidence that the note of a commit states, without verifying it
    Show(ShowEvidenceArgs),
    /// Verify that a trusted key signed the evidence for a commit; exits with 1 if none did
    Verify(VerifyEvidenceArgs),
    /// Print the public key that this host signs evidence with; the first call creates it
    Key,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowEvidenceArgs {
    /// The commit: an id, a branch or another revision
    commit: String,
    /// Print the statements as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct VerifyEvidenceArgs {
    /// The commit: an id, a branch or another revision
    commit: String,
    /// Trust the public key in this PEM file, and no key of the base branch
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Read trusted keys from this branch; by default the default branch of `origin`, else `main` or `master`
    #[arg(long, value_name = "BRANCH", conflicts_with = "key")]
    base: Option<String>,
    /// Print the verified statements as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn evidence(context: &Context, command: EvidenceSubcommand) -> CliResult {
    match command {
        EvidenceSubcommand::Show(args) => show(context, args).await,
        EvidenceSubcommand::Verify(args) => verify(context, args).await,
        EvidenceSubcommand::Key => key(context),
    }
}

fn key(context: &Context) -> CliResult {
    let path = context.surroundings().evidence_key()?;
    let public = SigningKey::load_or_create(&path)?.public();
    context.ui.data(public.pem().trim_end())?;
    context.ui.next(format_args!(
        "commit this key ({}) on the base branch as {EVIDENCE_KEYS_DIR}/NAME.pem, so that `ralph evidence verify` trusts it",
        public.id()
    ));
    Ok(CliExit::Success)
}

async fn show(context: &Context, args: ShowEvidenceArgs) -> CliResult {
    let (_, commit, note) = find(context, &args.commit).await?;
    let read = |envelope: &evidence::Envelope| {
        let payload = envelope.payload_bytes().unwrap_or_default();
        EvidenceStatement::parse(&envelope.payload_type, &payload)
    };
    let (statements, others): (Vec<_>, Vec<_>) = envelopes(&note).iter().map(read).partition(Result::is_ok);
    for error in others.into_iter().filter_map(Result::err) {
        let error = one_line(&error.to_string());
        context.ui.say(format_args!("warning: skipped: {error}"));
    }
    let statements: Vec<EvidenceStatement> = statements.into_iter().filter_map(Result::ok).collect();
    if statements.is_empty() {
        return Err(refused(&commit, &EvidenceRefusal::NoEnvelope, None));
    }
    let text: Vec<String> = statements.iter().map(describe).collect();
    context.ui.report(args.json, &statements, text.join("\n\n"))?;
    context.ui.say("not verified: anyone can write this");
    context.ui.next(format_args!(
        "`ralph evidence verify {commit}` checks who signed it"
    ));
    Ok(CliExit::Success)
}

/// A statement and who signed it, in the output of `verify --json`.
#[derive(Serialize, JsonSchema)]
pub(super) struct VerifiedOutput<'a> {
    key: String,
    source: &'a str,
    statement: &'a EvidenceStatement,
}

async fn verify(context: &Context, args: VerifyEvidenceArgs) -> CliResult {
    let (repository, commit, note) = find(context, &args.commit).await?;
    let (keys, listed) = if let Some(file) = &args.key {
        (vec![given_key(context, file)?], None)
    } else {
        let base = base_branch(&repository, args.base).await?;
        let listed = base_keys(context, &repository, &base, &commit).await?;
        (listed.trusted.clone(), Some((base, listed)))
    };
    let verified = evidence::verify(&note, &commit, &keys).map_err(|error| {
        let listed = listed.as_ref().map(|(base, keys)| (base.as_str(), keys));
        refused(&commit, &error, listed)
    })?;
    let output: Vec<VerifiedOutput<'_>> = verified.iter().map(output).collect();
    let text: Vec<String> = verified.iter().map(describe_verified).collect();
    context.ui.report(args.json, &output, text.join("\n\n"))?;
    if let Some(first) = verified.first() {
        let base = &first.statement.predicate.base;
        context.ui.next(format_args!(
            "review the change that passed these commands: `git diff {base} {commit}`"
        ));
    }
    Ok(CliExit::Success)
}

/// The repository, the commit that the user named, and its note.
async fn find(context: &Context, revision: &str) -> Result<(Repository, ObjectId, Vec<u8>), CliError> {
    let surroundings = context.surroundings();
    let repository = Repository::open(surroundings.host(), surroundings.dir()).await?;
    let commit = repository.resolve(revision).await?;
    let note = read_note(&repository, &commit).await?;
    if let Some(note) = note {
        return Ok((repository, commit, note));
    }
    // Only the commit that a run hands back has a note.
    let last = "name the last commit of a run, such as its branch";
    let hint = match repository.remote_url("origin").await? {
        Some(_) => format!("{last}, or get its note with `git fetch origin {NOTES_REF}:{NOTES_REF}`"),
        None => last.to_owned(),
    };
    let message = format!("commit {commit} has no evidence: `{NOTES_REF}` has no note for it");
    Err(CliError::runtime(message)
        .with_topic(ErrorTopic::Evidence)
        .with_hint(hint))
}

fn given_key(context: &Context, file: &Path) -> Result<TrustedKey, CliError> {
    let source = file.display().to_string();
    let text = fs::read_to_string(context.surroundings().dir().join(file)).map_err(|error| {
        CliError::usage(format!("cannot read the key `{source}`: {error}")).with_topic(ErrorTopic::Evidence).with_hint(
            "name a file with the public key of the host that signed; `ralph evidence key` prints it there",
        )
    })?;
    let key = VerifyingKey::parse(&source, &text)?;
    Ok(TrustedKey { source, key })
}

/// The branch whose keys count. A branch comes before a tag of the same name.
async fn base_branch(repository: &Repository, named: Option<String>) -> Result<String, CliError> {
    if let Some(named) = named {
        for full in [format!("refs/heads/{named}"), format!("refs/remotes/{named}")] {
            if repository.read_ref(&full).await?.is_some() {
                return Ok(full);
            }
        }
        return Ok(named);
    }
    repository.usual_base().await?.ok_or_else(|| {
        CliError::usage("this repository has no default branch of `origin`, no `main` and no `master`")
            .with_topic(ErrorTopic::Evidence)
            .with_hint("name the base branch with `--base BRANCH`, or a key with `--key FILE`")
    })
}

/// The keys that the base branch lists for this commit.
async fn base_keys(
    context: &Context,
    repository: &Repository,
    branch: &str,
    commit: &ObjectId,
) -> Result<BaseKeys, CliError> {
    let tip = repository.resolve(branch).await?;
    let keys = keys_on_base(repository, branch, &tip, commit).await?;
    for error in &keys.unusable {
        context.ui.say(format_args!("warning: {}", error_chain(error)));
    }
    Ok(keys)
}

/// Why the evidence does not count, and what to do next. `listed` is the base branch and its keys.
fn refused(commit: &ObjectId, error: &EvidenceRefusal, listed: Option<(&str, &BaseKeys)>) -> CliError {
    let mut message = format!(
        "the evidence for commit {commit} is not verified: {}",
        one_line(&error.to_string())
    );
    let hint = match (error, listed) {
        (EvidenceRefusal::NotTrusted(_), Some((branch, keys))) => {
            let own: Vec<&str> = keys.own.iter().map(|key| key.source.as_str()).collect();
            if own.is_empty() {
                let count = counted(keys.trusted.len(), "key");
                message = format!("{message}; {branch} lists {count} in {EVIDENCE_KEYS_DIR}/");
            } else {
                let own = own.join(", ");
                message = format!("{message}; {own} was added by the commit's own branch and does not count");
            }
            format!(
                "get the public key from the host that signed (`ralph evidence key`), then commit it on the base branch as \
                 {EVIDENCE_KEYS_DIR}/NAME.pem or name it with `--key FILE`; `--base BRANCH` names another base branch"
            )
        }
        (EvidenceRefusal::NotTrusted(_), None) => {
            "compare the key with what `ralph evidence key` prints on the host that signed".to_owned()
        }
        (EvidenceRefusal::OtherCommit(_), _) => {
            format!(
                "the note was copied: `git log {NOTES_REF}` shows by whom; do not trust this commit because of it"
            )
        }
        (EvidenceRefusal::NoEnvelope, _) => {
            format!("look at it with `git notes --ref={NOTES_REF} show {commit}`")
        }
        _ => "verify it with the version of ralph that signed it, or a newer one".to_owned(),
    };
    CliError::runtime(message)
        .with_topic(ErrorTopic::Evidence)
        .with_hint(hint)
}

fn output(verified: &VerifiedStatement) -> VerifiedOutput<'_> {
    VerifiedOutput {
        key: verified.signer.key.id().to_string(),
        source: &verified.signer.source,
        statement: &verified.statement,
    }
}

fn describe_verified(verified: &VerifiedStatement) -> String {
    let TrustedKey { source, key } = &verified.signer;
    let statement = describe(&verified.statement);
    format!("verified: signed with {} ({source})\n{statement}", key.id())
}

/// A statement for people. Each part is one line, so that no part can look like another.
fn describe(statement: &EvidenceStatement) -> String {
    let EvidencePredicate {
        ralph,
        task,
        run,
        base,
        commands,
        apart,
        shared,
        provider,
        image,
        network,
        agents,
        tokens,
        cost_usd,
    } = &statement.predicate;
    let mut lines = Vec::new();
    for subject in &statement.subject {
        lines.push(format!(
            "commit {} of {}",
            subject.digest.git_commit, subject.name
        ));
    }
    lines.push(format!("task {task}, run {run}, from {base}, by ralph {ralph}"));
    lines.extend(commands.iter().map(describe_command));
    let place = if *apart { "of its own" } else { "of the agent" };
    lines.push(format!("evidence in a sandbox {place}, provider {provider}"));
    lines.extend(
        shared
            .iter()
            .map(|shared| format!("shared with the agent: {shared}")),
    );
    lines.extend(image.as_ref().map(|image| {
        let digest = image.digest.as_deref().unwrap_or("digest unknown");
        format!("image {}, {digest}", image.name)
    }));
    lines.push(format!("network policy {}, {}", network.mode, network.digest));
    lines.extend(
        agents
            .iter()
            .map(|agent| format!("agent {}, model {}", agent.name, agent.model)),
    );
    let cost = cost_usd.map_or("unknown".to_owned(), |dollars| format!("${dollars:.4}"));
    lines.push(format!("{}, cost {cost}", counted(tokens.total(), "token")));
    let lines: Vec<String> = lines.iter().map(|line| one_line(line)).collect();
    lines.join("\n  ")
}

fn describe_command(ran: &EvidenceCommand) -> String {
    let started = ran
        .started
        .map(|at| format!(", started {at}"))
        .unwrap_or_default();
    let commit = ran
        .commit
        .as_ref()
        .map(|commit| format!(" on {commit}"))
        .unwrap_or_default();
    let times = match ran.runs {
        1 => String::new(),
        runs => format!(", {runs} times in a row"),
    };
    let EvidenceCommand {
        command,
        exit,
        seconds,
        ..
    } = ran;
    format!("`{command}`: exit {exit} after {seconds:.1} s{started}{commit}{times}")
}
