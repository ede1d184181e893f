//! Reviews of a run's pull request: what people with write permission ask for becomes the input of the run, which goes on.

use crate::config::{Config, ForgeType};
use crate::github::{ReviewedPull, Reviews, repository_name};
use crate::id::RepositoryName;
use crate::scm::{Repository, ReviewComment, ReviewPlace};
use crate::secret::Redactor;
use crate::state::{
    Intervention, InterventionRequest, REVIEW_ROUNDS, ReviewRound, RunDir, is_handled, review_rounds,
    since_done,
};
use crate::text::{counted, first_bytes, without_hidden};

use super::configuration::{self, project_dir};
use super::{AssemblyError, ErrorTopic, RunControl, forge};

/// The longest comment in bytes. Longer ones are cut.
const MAX_COMMENT: usize = 8 * 1024;
/// The most that the comments of a round have in bytes. Later ones wait for another round.
const MAX_ROUND: usize = 64 * 1024;

/// What a look at the reviews of a pull request found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReviewNews {
    /// Where the pull request is.
    pub(crate) location: String,
    /// How many comments are new. They wait in the inbox of the run.
    pub(crate) new: usize,
    /// How many new comments wait for another round, because there are too many.
    pub(crate) postponed: usize,
    /// How many comments are ignored, because their authors do not have write permission.
    pub(crate) ignored: usize,
    /// Whether the run has to be resumed: for new comments, or for those of a round that is not over.
    pub(crate) is_due: bool,
}

impl RunControl {
    /// The run of this name, or of a pull request: `12`, `#12` or its URL.
    pub(crate) async fn find_reviewed(&self, name: &str) -> Result<RunDir, AssemblyError> {
        let digits = name.strip_prefix('#').unwrap_or(name);
        match (digits.parse::<u64>(), name.contains("://")) {
            (Ok(number), _) => self.run_of_pull(number, None).await,
            (Err(_), true) => {
                let (repository, number) = split_url(name).ok_or_else(|| {
                    AssemblyError::usage(format!("`{name}` is not the URL of a pull request"))
                        .with_topic(ErrorTopic::Forge)
                        .with_hint("it looks like https://github.com/owner/name/pull/12")
                })?;
                self.run_of_pull(number, Some(repository)).await
            }
            (Err(_), false) => self.find(name),
        }
    }

    /// The run on this host that a pull request belongs to, by its marker or its branch. `repository` is the address that the
    /// caller gives.
    async fn run_of_pull(&self, number: u64, repository: Option<&str>) -> Result<RunDir, AssemblyError> {
        let dir = self.context.surroundings.dir();
        let config = configuration::load_quietly(&self.context, project_dir(dir), &self.given)?;
        let host = self.context.surroundings.builder_host();
        let name = reviewed_repository(&config, &Repository::open(host, dir).await?).await?;
        let given = repository.map(|address| repository_name(address, &config.settings.forge.github.url));
        if given.is_some_and(|given| given.as_ref() != Some(&name)) {
            let message = format!("the pull request is not one of {name}, the repository of this directory");
            return Err(AssemblyError::usage(message)
                .with_topic(ErrorTopic::Forge)
                .with_hint("change to a checkout of its repository, or name the run"));
        }
        let client = forge::create_client(&self.context, &config).await?;
        let reviews = Reviews::new(client, name.clone());
        let pull = reviews.pull(number).await?.ok_or_else(|| {
            AssemblyError::usage(format!("{name} has no pull request #{number}"))
                .with_topic(ErrorTopic::Forge)
                .with_hint("`ralph status RUN` shows the pull request of a run")
        })?;
        let run = self.find_by_branch(&pull, &name).await?;
        run.ok_or_else(|| {
            let message = format!("no run on this host has the pull request {}", pull.location);
            AssemblyError::usage(message)
                .with_topic(ErrorTopic::Forge)
                .with_hint("`ralph status` lists the runs; name one of them")
        })
    }

    /// The run of a pull request's branch in this repository, the one that its marker names first. The marker alone is not
    /// enough: anyone can write one into the text of a pull request of their own.
    async fn find_by_branch(
        &self,
        pull: &ReviewedPull,
        name: &RepositoryName,
    ) -> Result<Option<RunDir>, AssemblyError> {
        let mut runs = self.context.surroundings.runs()?.list()?;
        runs.retain(|run| Some(&run.facts().branch) == pull.branch.as_ref());
        // The newest first, and those that the marker does not name behind it.
        runs.reverse();
        runs.sort_by_key(|run| pull.run.as_ref() != Some(&run.facts().id));
        for run in runs {
            match self.is_of(&run, name).await {
                Ok(true) => return Ok(Some(run)),
                Ok(false) => {}
                // One run without its repository must not hide the others.
                Err(error) => {
                    let (id, reporter) = (&run.facts().id, &self.context.reporter);
                    reporter.warn(&format!("left out run `{id}`: {error}"));
                }
            }
        }
        Ok(None)
    }

    /// Whether a run works in this repository of GitHub.
    async fn is_of(&self, run: &RunDir, name: &RepositoryName) -> Result<bool, AssemblyError> {
        let config = self.configuration(run)?;
        if config.settings.forge.kind != ForgeType::Github {
            return Ok(false);
        }
        let host = self.context.surroundings.builder_host();
        let repository = Repository::open(host, &run.facts().repository).await?;
        Ok(forge::github_name(&config, &repository).await? == *name)
    }

    /// Reads the reviews of a run's pull request, and leaves what is new in the inbox of the run, once. The run must be at rest;
    /// if news are due, the caller resumes it. Refuses a third round.
    pub(crate) async fn take_reviews(&self, run: &RunDir) -> Result<ReviewNews, AssemblyError> {
        let (id, branch) = (&run.facts().id, &run.facts().branch);
        let config = self.configuration(run)?;
        let host = self.context.surroundings.builder_host();
        let repository = Repository::open(host, &run.facts().repository).await?;
        let name = reviewed_repository(&config, &repository).await?;
        let client = forge::create_client(&self.context, &config).await?;
        let redactor = Redactor::new(config.secrets());
        // The configuration knows neither the token of `gh` nor those of an App.
        forge::learn_token(&client, &redactor).await?;
        let reviews = Reviews::new(client, name);
        let pull = reviews.pull_of_run(branch, id).await?.ok_or_else(|| {
            AssemblyError::usage(format!("run `{id}` has no pull request yet"))
                .with_topic(ErrorTopic::Forge)
                .with_hint("it is opened when the run is done, or as `pr.when` of the task says")
        })?;
        if let Some(how) = pull.ended {
            let message = format!("the pull request {} was {how}", pull.location);
            return Err(AssemblyError::usage(message)
                .with_topic(ErrorTopic::Forge)
                .with_hint("`ralph run` starts another run"));
        }
        // No other process may take the same comments.
        let _lock = run.lock(&self.context.surroundings.owner())?;
        let lines = run.journal()?;
        let mut waiting = run.inbox().pending()?;
        // After a kill, one that is in the journal may be in the inbox too.
        waiting.retain(|request| !is_handled(&lines, &request.id));
        let waiting: Vec<&ReviewRound> = waiting.iter().filter_map(review_of).collect();
        let rounds: Vec<&ReviewRound> = review_rounds(&lines).chain(waiting.iter().copied()).collect();
        let is_known = |comment: &ReviewComment| rounds.iter().any(|round| round.has(comment));
        let found = reviews.comments(pull.number, is_known).await?;
        let is_open = !waiting.is_empty() || review_rounds(since_done(&lines)).next().is_some();
        let total = found.comments.len();
        if total > 0 && rounds.len() >= REVIEW_ROUNDS {
            return Err(too_many_rounds(run, total, is_open));
        }
        let comments = bounded(found.comments, &redactor);
        let new = comments.len();
        if new > 0 {
            let round = ReviewRound {
                pull_request: pull.number,
                comments,
            };
            self.intervene(run, Intervention::Review(round))?;
        }
        Ok(ReviewNews {
            location: pull.location,
            new,
            postponed: total - new,
            ignored: found.ignored,
            is_due: new > 0 || is_open,
        })
    }
}

async fn reviewed_repository(
    config: &Config,
    repository: &Repository,
) -> Result<RepositoryName, AssemblyError> {
    if config.settings.forge.kind != ForgeType::Github {
        let message = "reviews need the forge `github`, and `forge.type` is `local`";
        return Err(AssemblyError::usage(message)
            .with_topic(ErrorTopic::Forge)
            .with_hint("set `[forge] type = \"github\"`"));
    }
    forge::github_name(config, repository).await
}

fn review_of(request: &InterventionRequest) -> Option<&ReviewRound> {
    match &request.intervention {
        Intervention::Review(round) => Some(round),
        _ => None,
    }
}

fn too_many_rounds(run: &RunDir, new: usize, is_open: bool) -> AssemblyError {
    let id = &run.facts().id;
    let (rounds, new) = (counted(REVIEW_ROUNDS, "round"), counted(new, "new comment"));
    let hint = if is_open {
        format!("`ralph resume {id}` finishes the last round")
    } else {
        "make the change by hand, or `ralph run` a task that asks for it".to_owned()
    };
    AssemblyError::usage(format!(
        "run `{id}` had its {rounds} of review; {new} of reviewers would be another"
    ))
    .with_topic(ErrorTopic::Forge)
    .with_hint(hint)
}

/// The address of a repository and the number of the pull request that a URL names.
fn split_url(url: &str) -> Option<(&str, u64)> {
    let (repository, rest) = url.split_once("/pull/")?;
    let number = rest.split(['/', '#', '?']).next()?;
    Some((repository, number.parse().ok()?))
}

/// The comments without control characters and secrets, each within its size, as many as fit into a round.
fn bounded(comments: Vec<ReviewComment>, redactor: &Redactor) -> Vec<ReviewComment> {
    let mut room = MAX_ROUND;
    let mut fitting = Vec::new();
    for comment in comments {
        let comment = clean(comment, redactor);
        if comment.text.len() > room {
            break;
        }
        room -= comment.text.len();
        fitting.push(comment);
    }
    fitting
}

fn clean(comment: ReviewComment, redactor: &Redactor) -> ReviewComment {
    // In this order: hidden characters may be within a secret, and so may the place where a text is cut.
    let text = redactor.redact(&without_hidden(&comment.text));
    let kept = first_bytes(&text, MAX_COMMENT);
    let cut = text.len() - kept.len();
    let text = if cut > 0 {
        format!("{kept}\n[... {} cut ...]", counted(cut, "byte"))
    } else {
        kept.to_owned()
    };
    let place = match comment.place {
        ReviewPlace::Thread { thread, path, line } => ReviewPlace::Thread {
            thread,
            path: redactor.redact(&without_hidden(&path)),
            line,
        },
        place => place,
    };
    ReviewComment {
        place,
        text,
        ..comment
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::secret::Secret;

    #[rstest]
    #[case("https://github.com/o/r/pull/12", Some(("https://github.com/o/r", 12)))]
    #[case("https://github.com/o/r/pull/12/files#r3", Some(("https://github.com/o/r", 12)))]
    #[case("https://github.com/o/r/issues/12", None)]
    #[case("https://github.com/o/r/pull/x", None)]
    fn a_url_names_a_pull_request(#[case] url: &str, #[case] expected: Option<(&str, u64)>) {
        assert_eq!(split_url(url), expected);
    }

    fn comment(text: String) -> ReviewComment {
        ReviewComment {
            place: ReviewPlace::Discussion,
            id: 1,
            author: "ada".to_owned(),
            text,
        }
    }

    #[test]
    fn comments_are_cleaned_and_bounded() {
        let redactor = Redactor::new([Secret::new("gho_0123456789abcdef")]);
        let long = comment("\u{1b}[31mä".repeat(MAX_COMMENT));
        let cleaned = clean(long.clone(), &redactor).text;
        assert!(
            !cleaned.contains('\u{1b}') && cleaned.len() < MAX_COMMENT + 40,
            "{}",
            cleaned.len()
        );
        assert!(cleaned.ends_with(" cut ...]"), "{cleaned}");
        let fitting = bounded(vec![long; 20], &redactor);
        let total: usize = fitting.iter().map(|comment| comment.text.len()).sum();
        assert_eq!(fitting.len(), 7);
        assert!(total <= MAX_ROUND);
        let filler = "x".repeat(MAX_COMMENT - 10);
        for secret in ["gho_0123456789abcdef", "gho_01234\u{1b}56789abcdef"] {
            let cleaned = clean(comment(format!("{secret} {filler}{secret}")), &redactor).text;
            assert!(!cleaned.contains("gho_"), "{cleaned}");
        }
    }
}
