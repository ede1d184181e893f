//! The checks of a commit: check runs of Apps, statuses, and the logs of jobs that failed.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::client::GitHubClient;
use super::error::GitHubError;
use super::statuses::CONTEXT;
use crate::id::{ObjectId, RepositoryName};
use crate::scm::{CiFailure, CiReport};
use crate::secret::Redactor;
use crate::text::without_escapes;

/// How many pages of check runs are read at most.
const MAX_PAGES: u64 = 10;
/// How many failures get their log.
const MAX_LOGS: usize = 5;
/// How many lines of a log are shown.
const LOG_LINES: usize = 60;
/// How many bytes of a log are shown.
const LOG_BYTES: usize = 6 * 1024;

/// A page of check runs.
#[derive(Deserialize)]
pub(super) struct CheckRuns {
    total_count: u64,
    check_runs: Vec<CheckRun>,
}

#[derive(Clone, Deserialize)]
struct CheckRun {
    id: u64,
    name: String,
    status: String,
    conclusion: Option<String>,
    app: Option<CheckApp>,
    check_suite: Option<CheckSuite>,
    output: Option<CheckOutput>,
}

#[derive(Clone, Deserialize)]
struct CheckApp {
    slug: Option<String>,
}

/// The runs of one App for one event. Two workflows, or a push and a pull request, may have jobs of the same name.
#[derive(Clone, Deserialize)]
struct CheckSuite {
    id: u64,
}

#[derive(Clone, Deserialize)]
struct CheckOutput {
    title: Option<String>,
}

/// The newest status of each context.
#[derive(Deserialize)]
pub(super) struct CombinedStatus {
    statuses: Vec<CommitStatus>,
}

#[derive(Deserialize)]
struct CommitStatus {
    context: String,
    state: String,
    description: Option<String>,
}

/// What the checks and statuses of a commit say. The state of the combined status is not used: it is `pending` for a commit
/// without statuses, and knows no check runs.
pub(super) async fn report(
    client: &GitHubClient,
    repository: &RepositoryName,
    commit: &ObjectId,
    redactor: &Redactor,
) -> Result<CiReport, GitHubError> {
    let mut report = CiReport::default();
    let mut failed = Vec::new();
    for run in check_runs(client, repository, commit).await? {
        match (run.status.as_str(), run.conclusion.as_deref()) {
            ("completed", Some("success" | "neutral" | "skipped")) => report.passed.push(run.name),
            ("completed", Some(_)) => failed.push(run),
            _ => report.pending.push(run.name),
        }
    }
    let statuses = statuses(client, repository, commit).await?;
    for status in statuses.into_iter().filter(|status| status.context != CONTEXT) {
        match status.state.as_str() {
            "success" => report.passed.push(status.context),
            "pending" => report.pending.push(status.context),
            state => report.failed.push(CiFailure {
                conclusion: state.to_owned(),
                name: status.context,
                log: status
                    .description
                    .unwrap_or_else(|| "it has no description".to_owned()),
            }),
        }
    }
    // Logs cost calls, so only a decided report has them.
    let is_decided = report.pending.is_empty();
    for (index, run) in failed.into_iter().enumerate() {
        let log = if is_decided && index < MAX_LOGS {
            log(client, repository, &run, redactor).await
        } else {
            String::new()
        };
        report.failed.push(CiFailure {
            conclusion: run.conclusion.unwrap_or_default(),
            name: run.name,
            log,
        });
    }
    Ok(report)
}

/// The newest status of each context.
async fn statuses(
    client: &GitHubClient,
    repository: &RepositoryName,
    commit: &ObjectId,
) -> Result<Vec<CommitStatus>, GitHubError> {
    let mut statuses = Vec::new();
    for page in 1..=MAX_PAGES {
        let path = format!("repos/{repository}/commits/{commit}/status?per_page=100&page={page}");
        let found: CombinedStatus = client.get(&path).await?;
        let is_last = found.statuses.len() < 100;
        statuses.extend(found.statuses);
        if is_last {
            return Ok(statuses);
        }
    }
    Err(too_many(commit))
}

/// The newest run of each check, by its App, suite and name.
async fn check_runs(
    client: &GitHubClient,
    repository: &RepositoryName,
    commit: &ObjectId,
) -> Result<Vec<CheckRun>, GitHubError> {
    let mut newest: BTreeMap<(String, Option<u64>, String), CheckRun> = BTreeMap::new();
    let mut seen = 0;
    for page in 1..=MAX_PAGES {
        let path =
            format!("repos/{repository}/commits/{commit}/check-runs?filter=latest&per_page=100&page={page}");
        let found: CheckRuns = client.get(&path).await?;
        seen += found.check_runs.len() as u64;
        let is_last = found.check_runs.is_empty() || seen >= found.total_count;
        for run in found.check_runs {
            let suite = run.check_suite.as_ref().map(|suite| suite.id);
            let key = (app(&run).to_owned(), suite, run.name.clone());
            if newest.get(&key).is_none_or(|known| known.id < run.id) {
                newest.insert(key, run);
            }
        }
        if is_last {
            return Ok(newest.into_values().collect());
        }
    }
    Err(too_many(commit))
}

/// A failure beyond the last page would count as none.
fn too_many(commit: &ObjectId) -> GitHubError {
    GitHubError::Response {
        call: format!("the checks of {commit}"),
        source: format!("there are more than {}", MAX_PAGES * 100).into(),
    }
}

fn app(run: &CheckRun) -> &str {
    let app = run.app.as_ref().and_then(|app| app.slug.as_deref());
    app.unwrap_or_default()
}

/// The end of a job's log, or the reason why it has no log. Jobs of GitHub Actions have the id of their check run.
async fn log(
    client: &GitHubClient,
    repository: &RepositoryName,
    run: &CheckRun,
    redactor: &Redactor,
) -> String {
    let title = run.output.as_ref().and_then(|output| output.title.clone());
    let title = title.unwrap_or_else(|| "it has no title".to_owned());
    if app(run) != "github-actions" {
        return title;
    }
    let path = format!("repos/{repository}/actions/jobs/{}/logs", run.id);
    match client.text(&path).await {
        // Before it is cut: a part of a secret would not be found.
        Ok(log) => log_tail(&redactor.redact(&log)),
        Err(error) => match (error.status(), error.hint()) {
            (Some(403), Some(hint)) => format!("{title} (its log cannot be read: {hint})"),
            (Some(404), _) => format!("{title} (it has no log)"),
            (Some(410), _) => format!("{title} (its log has expired)"),
            _ => format!("{title} (its log cannot be read: {error})"),
        },
    }
}

/// The lines up to the last error, without time stamps and escape sequences.
fn log_tail(log: &str) -> String {
    let lines: Vec<String> = log.lines().map(plain).collect();
    let last_error = lines.iter().rposition(|line| line.contains("##[error]"));
    let end = last_error.map_or(lines.len(), |at| at + 1);
    let text = lines[end.saturating_sub(LOG_LINES)..end].join("\n");
    let from = text.len().saturating_sub(LOG_BYTES);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    text[from.unwrap_or(text.len())..].to_owned()
}

/// A line without its time stamp, escape sequences and control characters.
fn plain(line: &str) -> String {
    let is_time = |text: &str| {
        text.trim_start_matches('\u{feff}')
            .parse::<jiff::Timestamp>()
            .is_ok()
    };
    let line = match line.split_once(' ') {
        Some((stamp, rest)) if is_time(stamp) => rest,
        _ => line,
    };
    let mut plain = String::with_capacity(line.len());
    without_escapes(line, &mut plain);
    plain = plain.replace('\t', " ");
    plain.retain(|character| !character.is_control());
    plain
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn a_log_ends_at_its_last_error_without_escapes_and_time() {
        let mut log = "\u{feff}2026-11-17T10:00:00.1234567Z start\n".to_owned();
        for line in 0..200 {
            writeln!(
                log,
                "2026-11-17T10:00:01.0000000Z \u{1b}[31mline {line}\u{1b}[0m\r"
            )
            .unwrap();
        }
        log.push_str("2026-11-17T10:00:02.0000000Z ##[error]Process completed with exit code 1.\ncleanup\n");
        let tail = log_tail(&log);
        assert!(
            tail.ends_with("line 199\n##[error]Process completed with exit code 1."),
            "{tail}"
        );
        assert!(tail.starts_with("line 141\n"), "{tail}");
    }

    #[test]
    fn a_title_for_the_terminal_is_no_part_of_a_log() {
        assert_eq!(plain("\u{1b}]0;title\u{7}a\tb\u{1b}(Bc\u{8}"), "a bc");
    }

    #[test]
    fn a_long_line_is_cut() {
        assert!(log_tail(&"ä".repeat(100_000)).len() <= LOG_BYTES);
        assert_eq!(log_tail(""), "");
    }
}
