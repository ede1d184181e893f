//! Fetches what the view shows, once a second and after each change of the view.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::super::CliError;
use super::client::{RunClient, RunRow, WatchRequest};
use super::overview::{RunGroup, RunOverview};
use super::state::{RunTab, WatchNews, Watched};

/// How long until everything is fetched again.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many runs of the list are looked at more closely at once.
const LOOKED_AT: usize = 20;

/// How many news may wait to be shown.
pub(super) const WAITING_NEWS: usize = 64;

/// What to fetch, and when to fetch it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PollTarget {
    pub(super) watched: Watched,
    /// Another number fetches at once.
    pub(super) round: u64,
}

/// Fetches for the view until the view is gone.
pub(super) struct WatchPoller {
    client: RunClient,
    news: mpsc::Sender<WatchNews>,
    target: watch::Receiver<PollTarget>,
    /// What the extras of the runs of the list were made from.
    looked_at: HashMap<String, String>,
    /// The log that is followed, and the id of its last line.
    log: Option<(Watched, u64)>,
    /// The run whose diff is shown, and what it was made from.
    diff: Option<(String, String)>,
}

/// The view is gone.
struct ViewGone;

impl WatchPoller {
    pub(super) fn new(
        client: RunClient,
        news: mpsc::Sender<WatchNews>,
        target: watch::Receiver<PollTarget>,
    ) -> Self {
        Self {
            client,
            news,
            target,
            looked_at: HashMap::new(),
            log: None,
            diff: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let watched = self.target.borrow_and_update().watched.clone();
            let outcome = match self.poll(&watched).await {
                Ok(Ok(())) => WatchNews::Reached,
                Ok(Err(ViewGone)) => return,
                Err(error) => WatchNews::Failed(with_hint(&error)),
            };
            if self.news.send(outcome).await.is_err() {
                return;
            }
            tokio::select! {
                () = sleep(INTERVAL) => {}
                changed = self.target.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn poll(&mut self, watched: &Watched) -> Result<Result<(), ViewGone>, CliError> {
        match &watched.run {
            None => self.poll_list().await,
            Some(run) => self.poll_run(run, watched).await,
        }
    }

    async fn report(&self, news: WatchNews) -> Result<(), ViewGone> {
        self.news.send(news).await.map_err(|_| ViewGone)
    }

    async fn poll_list(&mut self) -> Result<Result<(), ViewGone>, CliError> {
        // Log and diff are fetched again when a run is opened.
        (self.log, self.diff) = (None, None);
        let rows = self.client.runs().await?;
        let mut changed: Vec<RunRow> = rows
            .runs
            .iter()
            .filter(|row| self.has_changed(row))
            .cloned()
            .collect();
        changed.sort_by_key(|row| RunGroup::of(&row.state, row.queue.as_deref()) != RunGroup::Running);
        changed.truncate(LOOKED_AT);
        if self.report(WatchNews::Runs(rows)).await.is_err() {
            return Ok(Err(ViewGone));
        }
        for row in changed {
            // A run may be removed meanwhile.
            if let Ok(overview) = self.overview(&row.run).await {
                let news = WatchNews::Extras(row.run.clone(), overview.extras());
                if self.report(news).await.is_err() {
                    return Ok(Err(ViewGone));
                }
            }
            self.looked_at.insert(row.run.clone(), mark(&row));
        }
        Ok(Ok(()))
    }

    fn has_changed(&self, row: &RunRow) -> bool {
        self.looked_at.get(&row.run) != Some(&mark(row))
    }

    /// A run whose files another host has knows no budgets; the reason is shown.
    async fn overview(&self, run: &str) -> Result<RunOverview, CliError> {
        let details = self.client.details(run).await?;
        let budgets = self.client.budgets(run).await.map_err(|error| with_hint(&error));
        Ok(RunOverview { details, budgets })
    }

    async fn poll_run(&mut self, run: &str, watched: &Watched) -> Result<Result<(), ViewGone>, CliError> {
        let overview = self.overview(run).await?;
        let details = &overview.details;
        let work = format!("{} {}", details.iterations, details.state);
        if self
            .report(WatchNews::Overview(Box::new(overview)))
            .await
            .is_err()
        {
            return Ok(Err(ViewGone));
        }
        match watched.tab {
            RunTab::Overview => Ok(Ok(())),
            RunTab::Log => self.poll_log(run, watched).await,
            RunTab::Diff => self.poll_diff(run, work).await,
        }
    }

    async fn poll_log(&mut self, run: &str, watched: &Watched) -> Result<Result<(), ViewGone>, CliError> {
        let known = self.log.as_ref().filter(|(log, _)| log == watched);
        let after = known.map(|(_, next)| *next);
        let page = self.client.log(run, after, &watched.search).await?;
        self.log = Some((watched.clone(), page.next));
        let is_first = after.is_none();
        if !is_first && page.lines.is_empty() {
            return Ok(Ok(()));
        }
        let watched = watched.clone();
        let news = WatchNews::Log {
            watched,
            page,
            is_first,
        };
        Ok(self.report(news).await)
    }

    /// The changes are those of the last checkpoint, so they are fetched once for each iteration.
    async fn poll_diff(&mut self, run: &str, work: String) -> Result<Result<(), ViewGone>, CliError> {
        let made_from = (run.to_owned(), work);
        if self.diff.as_ref() == Some(&made_from) {
            return Ok(Ok(()));
        }
        let diff = self.client.diff(run).await?;
        self.diff = Some(made_from);
        Ok(self.report(WatchNews::Diff(run.to_owned(), diff)).await)
    }
}

/// What shows that a run changed.
fn mark(row: &RunRow) -> String {
    format!("{} {}", row.updated, row.state)
}

/// Asks something of a run, and reports what came of it.
pub(super) async fn request(
    client: RunClient,
    news: mpsc::Sender<WatchNews>,
    run: String,
    request: WatchRequest,
) {
    let result = client.request(&run, &request).await;
    let result = result.map_err(|error| with_hint(&error));
    // Fails only if the view is gone.
    let _ = news.send(WatchNews::Requested(result)).await;
}

/// An error as one text, with its next step.
fn with_hint(error: &CliError) -> String {
    let text = error.to_string();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    match error.hint() {
        Some(hint) => format!("{text}{end} Hint: {hint}."),
        None => format!("{text}{end}"),
    }
}
