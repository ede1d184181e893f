//! Answers that are asked for again and again: GitHub does not count a call whose answer has not changed.

use bytes::Bytes;
use reqwest::header::{ETAG, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::answer::{has_next_page, parse, read_body};
use super::client::{GitHubCall, GitHubClient, MAX_PAGES, too_many_pages};
use super::error::GitHubError;

/// How many items a page has.
const PAGE: usize = 100;
/// How many answers are kept to be asked for again.
const MAX_KEPT: usize = 2000;

/// An answer, and the tag by which GitHub says whether it is still the same.
#[derive(Clone)]
pub(super) struct KeptAnswer {
    tag: HeaderValue,
    body: Bytes,
    has_next_page: bool,
}

impl GitHubClient {
    /// Gets an object that was probably read before. GitHub does not count the call if it has not changed since.
    pub(super) async fn get_again<T: DeserializeOwned>(&self, path: &str) -> Result<T, GitHubError> {
        self.ask_again(path).await.map(|(object, _)| object)
    }

    /// Like [`GitHubClient::list`] for a list that was probably read before. GitHub does not count pages that have not
    /// changed since.
    pub(super) async fn list_again<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, GitHubError> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        for page in 1..=MAX_PAGES {
            let path = format!("{path}{separator}per_page={PAGE}&page={page}");
            let (page, has_next_page): (Vec<T>, bool) = self.ask_again(&path).await?;
            // A full page that has not changed may have got a next one since.
            let is_full = page.len() >= PAGE;
            items.extend(page);
            if !has_next_page && !is_full {
                return Ok(items);
            }
        }
        Err(too_many_pages(path))
    }

    async fn ask_again<T: DeserializeOwned>(&self, path: &str) -> Result<(T, bool), GitHubError> {
        let kept = self.kept.lock().await.get(path).cloned();
        let mut call = GitHubCall::new(self, Method::GET, path);
        call.known_tag = kept.as_ref().map(|kept| kept.tag.clone());
        let response = call.send().await?;
        let (body, has_next_page) = match kept {
            Some(kept) if response.status() == StatusCode::NOT_MODIFIED => (kept.body, kept.has_next_page),
            _ => {
                let (tag, has_next_page) = (
                    response.headers().get(ETAG).cloned(),
                    has_next_page(response.headers()),
                );
                let body = read_body(&call.name, response).await?;
                if let Some(tag) = tag {
                    let answer = KeptAnswer {
                        tag,
                        body: body.clone(),
                        has_next_page,
                    };
                    self.keep(path, answer).await;
                }
                (body, has_next_page)
            }
        };
        Ok((parse(&call.name, &body)?, has_next_page))
    }

    async fn keep(&self, path: &str, answer: KeptAnswer) {
        let mut kept = self.kept.lock().await;
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(path.to_owned(), answer);
    }
}
