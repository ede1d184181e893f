//! Submits runs to the queue.
//!
//! A run is created first, with its directory, its branch and the first commit of its state ref, and queued then. A crash in
//! between leaves a run that `ralph status` lists and that can be submitted by its id.

use jiff::Timestamp;

use crate::assembly::queued_run::{QueuedRepository, QueuedRun};
use crate::assembly::{AssemblyContext, AssemblyError, RalphBuilder};
use crate::id::RunId;
use crate::store::{Label, Store, Submission};

/// What is submitted.
pub(crate) enum SubmittedRun {
    /// A run that does not exist yet.
    New(Box<RalphBuilder>),
    /// A run of this host. One that ended in the queue, or waits for a person there, is queued again.
    Existing(RunId),
}

/// A run, and how it waits in the queue.
pub(crate) struct SubmitRequest {
    pub(crate) run: SubmittedRun,
    /// What it requires of a worker, besides its provider and its host.
    pub(crate) labels: Vec<Label>,
    /// Higher ones are claimed first.
    pub(crate) priority: i64,
    /// The earliest start.
    pub(crate) not_before: Option<Timestamp>,
    /// After so many attempts without a result it waits for a person.
    pub(crate) max_attempts: u32,
}

/// Queues a run. Submitting the same one twice queues it once.
pub(crate) async fn submit(
    context: &AssemblyContext,
    store: &Store,
    request: SubmitRequest,
) -> Result<RunId, AssemblyError> {
    let (queued, run) = match request.run {
        SubmittedRun::New(builder) => {
            let prepared = builder.prepare().await?;
            let queued = prepared.queued().await?;
            // Refused before the run exists.
            labels(context, store, &queued, &request.labels)?;
            (queued, prepared.create().await?.facts().id.clone())
        }
        SubmittedRun::Existing(run) => {
            let dir = context.surroundings.runs()?.open(&run)?;
            // They were about work that has ended.
            if dir.holder()?.is_none() {
                dir.inbox().discard_orders()?;
            }
            if store.queue_row(&run).await?.is_some() {
                // It keeps the labels, priority and attempts that it was queued with.
                store.requeue(&run).await?;
                return Ok(run);
            }
            (QueuedRun::of_run(context, &dir).await?, run)
        }
    };
    let submission = Submission {
        run,
        project: match &queued.repository {
            QueuedRepository::Url(url) => url.clone(),
            QueuedRepository::Directory(dir) => dir.display().to_string(),
        },
        labels: labels(context, store, &queued, &request.labels)?,
        request: serde_json::to_string(&queued).map_err(|error| AssemblyError::runtime(error.to_string()))?,
        priority: request.priority,
        not_before: request.not_before,
        max_attempts: request.max_attempts,
    };
    store.submit(&submission).await.map_err(|error| {
        let id = &submission.run;
        let message = format!(
            "run `{id}` was created and not queued: {}",
            AssemblyError::from(error)
        );
        AssemblyError::runtime(message).with_hint(format!("`ralph submit --run {id}` queues it"))
    })?;
    Ok(submission.run)
}

/// What the run requires of a worker: what was given, its provider, and its host unless other hosts have all that it needs.
fn labels(
    context: &AssemblyContext,
    store: &Store,
    queued: &QueuedRun,
    given: &[Label],
) -> Result<Vec<Label>, AssemblyError> {
    let mut labels = given.to_vec();
    let is_given = |key: &str| given.iter().any(|label| label.as_str().starts_with(key));
    if !is_given("provider=") {
        labels.push(Label::parse(&format!("provider={}", queued.provider))?);
    }
    if is_given("host=") {
        return Ok(labels);
    }
    let host = format!("host={}", context.surroundings.owner().host);
    if !store.is_shared() {
        labels.push(Label::parse(&host)?);
        return Ok(labels);
    }
    let problem = match &queued.repository {
        QueuedRepository::Directory(dir) => format!(
            "the repository `{}` is a directory of this host, and workers on other hosts do not have it",
            dir.display()
        ),
        QueuedRepository::Url(_) if queued.has_state_remote => return Ok(labels),
        QueuedRepository::Url(url) => format!(
            "the state of the run would be in the mirror of `{url}` on this host, and workers on other hosts do not have it"
        ),
    };
    Err(AssemblyError::usage(problem).with_hint(format!(
        "`--label {host}` lets only workers on this host have the run; with `--repo URL` and `git.state_remote` all can"
    )))
}
