//! GitHub's GraphQL API, for what REST does not have: the end of a draft, which threads of a review are resolved, and several
//! changes with one call.

use std::collections::BTreeSet;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::MAX_MESSAGE;
use super::client::{GitHubCall, GitHubClient, MAX_PAGES, too_many_pages};
use super::error::GitHubError;
use crate::id::RepositoryName;

const READY: &str = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { id } } }";

/// The first comment names a thread, as in REST. Its `databaseId` is too small for the numbers that GitHub has today.
const THREADS: &str = "query($owner: String!, $name: String!, $number: Int!, $after: String) { \
    repository(owner: $owner, name: $name) { pullRequest(number: $number) { \
    reviewThreads(first: 100, after: $after) { \
    nodes { isResolved comments(first: 1) { nodes { fullDatabaseId } } } \
    pageInfo { hasNextPage endCursor } } } } }";

/// A page of threads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadPage {
    nodes: Vec<Thread>,
    page_info: PageInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    is_resolved: bool,
    comments: ThreadComments,
}

#[derive(Deserialize)]
struct ThreadComments {
    nodes: Vec<ThreadComment>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadComment {
    /// A number as text. `None` for a comment that was just deleted.
    full_database_id: Option<String>,
}

impl Thread {
    /// The number of its first comment.
    fn id(&self) -> Option<u64> {
        self.comments
            .nodes
            .first()?
            .full_database_id
            .as_ref()?
            .parse()
            .ok()
    }
}

impl GitHubClient {
    /// Marks a draft as ready for review. Doing it twice is harmless.
    pub(super) async fn mark_ready(&self, node_id: &str) -> Result<(), GitHubError> {
        let variables = json!({"id": node_id});
        self.mutate("markPullRequestReadyForReview", READY, variables)
            .await
    }

    /// Makes changes. Doing them twice must be harmless.
    pub(super) async fn mutate(
        &self,
        operation: &'static str,
        query: &str,
        variables: Value,
    ) -> Result<(), GitHubError> {
        let body = json!({"query": query, "variables": variables});
        let call = GitHubCall::new(self, Method::POST, "graphql").body(body);
        data(operation, call.repeatable().json().await?).map(drop)
    }

    /// The resolved threads of a pull request, each by the number of its first comment.
    pub(super) async fn resolved_threads(
        &self,
        repository: &RepositoryName,
        number: u64,
    ) -> Result<BTreeSet<u64>, GitHubError> {
        let (owner, name) = repository.as_str().split_once('/').unwrap_or_default();
        let mut resolved = BTreeSet::new();
        let mut after = None;
        for _ in 0..MAX_PAGES {
            let variables = json!({"owner": owner, "name": name, "number": number, "after": after});
            let body = json!({"query": THREADS, "variables": variables});
            let call = GitHubCall::new(self, Method::POST, "graphql").body(body);
            let mut data = data("reviewThreads", call.reading().json().await?)?;
            let page = data["repository"]["pullRequest"]["reviewThreads"].take();
            let page: ThreadPage = serde_json::from_value(page).map_err(|error| GitHubError::Response {
                call: "POST /graphql".to_owned(),
                source: error.into(),
            })?;
            let found = page.nodes.iter().filter(|thread| thread.is_resolved);
            resolved.extend(found.filter_map(Thread::id));
            if !page.page_info.has_next_page {
                return Ok(resolved);
            }
            after = page.page_info.end_cursor;
        }
        Err(too_many_pages("graphql"))
    }
}

/// The data of an answer. GraphQL refuses with status 200.
fn data(operation: &'static str, mut answer: Value) -> Result<Value, GitHubError> {
    match answer["errors"][0]["message"].as_str() {
        Some(message) => Err(GitHubError::GraphQl {
            operation,
            message: message.chars().take(MAX_MESSAGE).collect(),
        }),
        None => Ok(answer["data"].take()),
    }
}
