//! GitHub's GraphQL API, for what REST does not have: the end of a draft, which threads of a review are resolved, and several
//! changes with one call.

use std::collections::BTreeSet;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{MAX_MESSAGE, asked_pause, read};
use super::client::{GitHubCall, GitHubClient, MAX_PAGES, too_many_pages};
use super::error::GitHubError;
use super::pace::LimitWaits;
use crate::id::RepositoryName;

const READY: &str = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { id } } }";

/// The fields with the number that a comment has in REST. The second one is too small for the numbers of today's GitHub, but
/// old servers do not know the first.
const COMMENT_NUMBERS: [&str; 2] = ["fullDatabaseId", "databaseId"];

/// A page of threads. The first comment names a thread, as in REST.
fn threads_query(comment_number: &str) -> String {
    format!(
        "query($owner: String!, $name: String!, $number: Int!, $after: String) {{ \
         repository(owner: $owner, name: $name) {{ pullRequest(number: $number) {{ \
         reviewThreads(first: 100, after: $after) {{ \
         nodes {{ isResolved comments(first: 1) {{ nodes {{ number: {comment_number} }} }} }} \
         pageInfo {{ hasNextPage endCursor }} }} }} }} }}"
    )
}

/// A page of threads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThreadPage {
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
struct ThreadComment {
    /// A number, which the newer field has as text. Null for a comment that was just deleted.
    number: Value,
}

impl ThreadPage {
    /// The resolved threads, each by the number of its first comment.
    pub(super) fn resolved(&self) -> impl Iterator<Item = u64> {
        let resolved = self.nodes.iter().filter(|thread| thread.is_resolved);
        resolved.filter_map(Thread::id)
    }
}

impl Thread {
    /// The number of its first comment.
    fn id(&self) -> Option<u64> {
        let number = &self.comments.nodes.first()?.number;
        number
            .as_u64()
            .or_else(|| number.as_str().and_then(|text| text.parse().ok()))
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
        self.query(operation, &call.repeatable()).await.map(drop)
    }

    /// The data of an answer. GraphQL refuses with status 200, also because of a rate limit.
    async fn query(&self, operation: &'static str, call: &GitHubCall<'_>) -> Result<Value, GitHubError> {
        let mut waits = LimitWaits::begin();
        loop {
            let response = call.send().await?;
            let pause = asked_pause(response.headers(), self.now());
            let mut answer: Value = read(&call.name, response).await?;
            let error = &answer["errors"][0];
            let Some(message) = error["message"].as_str() else {
                return Ok(answer["data"].take());
            };
            let is_limit = error["type"] == "RATE_LIMITED" || message.to_lowercase().contains("rate limit");
            if !is_limit {
                return Err(GitHubError::GraphQl {
                    operation,
                    message: message.chars().take(MAX_MESSAGE).collect(),
                });
            }
            self.begin_pause(&mut waits, &call.name, pause).await?;
        }
    }

    /// The resolved threads of a pull request, each by the number of its first comment.
    pub(super) async fn resolved_threads(
        &self,
        repository: &RepositoryName,
        number: u64,
    ) -> Result<BTreeSet<u64>, GitHubError> {
        let [newer, older] = COMMENT_NUMBERS;
        match self.resolved_threads_by(newer, repository, number).await {
            Err(GitHubError::GraphQl { message, .. }) if message.contains(newer) => {
                self.resolved_threads_by(older, repository, number).await
            }
            resolved => resolved,
        }
    }

    async fn resolved_threads_by(
        &self,
        comment_number: &str,
        repository: &RepositoryName,
        number: u64,
    ) -> Result<BTreeSet<u64>, GitHubError> {
        let query = threads_query(comment_number);
        let (owner, name) = repository.as_str().split_once('/').unwrap_or_default();
        let mut resolved = BTreeSet::new();
        let mut after = None;
        for _ in 0..MAX_PAGES {
            let variables = json!({"owner": owner, "name": name, "number": number, "after": after});
            let body = json!({"query": query, "variables": variables});
            let call = GitHubCall::new(self, Method::POST, "graphql").body(body);
            let mut data = self.query("reviewThreads", &call.reading()).await?;
            let page = data["repository"]["pullRequest"]["reviewThreads"].take();
            let page: ThreadPage = serde_json::from_value(page).map_err(|error| GitHubError::Response {
                call: "POST /graphql".to_owned(),
                source: error.into(),
            })?;
            resolved.extend(page.resolved());
            if !page.page_info.has_next_page {
                return Ok(resolved);
            }
            after = page.page_info.end_cursor;
        }
        Err(too_many_pages("graphql"))
    }
}
