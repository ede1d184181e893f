//! One attempt to deliver a notice.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::json;

use crate::exec::{Command, Discard, Host};
use crate::text::error_chain;

use super::channel::ChannelAddress;
use super::{Notice, NotifyEvent};

/// The time limit of one attempt.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("{0}")]
    Unreachable(String),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("`{program}`: {reason}")]
    Command { program: String, reason: String },
}

impl SendError {
    /// Whether another attempt cannot succeed.
    pub(super) fn is_final(&self) -> bool {
        let Self::Status(status) = self else {
            return false;
        };
        let may_pass = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(status);
        !status.is_server_error() && !may_pass
    }
}

impl From<reqwest::Error> for SendError {
    fn from(error: reqwest::Error) -> Self {
        // The address may contain a credential.
        Self::Unreachable(error_chain(&error.without_url()))
    }
}

/// What attempts are made with.
#[derive(Clone)]
pub(super) struct Sender {
    http: Client,
    host: Host,
}

impl Sender {
    /// No redirect is followed: it would send the notice, and its signature, to an address that is not configured.
    pub(super) fn new(host: Host) -> Result<Self, reqwest::Error> {
        let http = Client::builder()
            .user_agent(concat!("ralph/", env!("CARGO_PKG_VERSION")))
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { http, host })
    }

    pub(super) async fn send(
        &self,
        address: &ChannelAddress,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<(), SendError> {
        let request = match address {
            ChannelAddress::Webhook { url, key } => {
                let (body, timestamp) = (notice.payload().to_string(), now.as_second());
                let mut request = self
                    .http
                    .post(url.expose())
                    .header("content-type", "application/json")
                    .header("webhook-id", &notice.id)
                    .header("webhook-timestamp", timestamp);
                if let Some(key) = key {
                    request = request.header("webhook-signature", key.sign(&notice.id, timestamp, &body));
                }
                request.body(body)
            }
            ChannelAddress::Slack { url } => self.http.post(url.expose()).json(&slack_message(notice)),
            ChannelAddress::Ntfy { url, token } => {
                let request = ntfy_message(self.http.put(url.expose()), notice);
                match token {
                    Some(token) => request.bearer_auth(token.expose()),
                    None => request,
                }
            }
            ChannelAddress::Command(words) => return self.run(words, notice).await,
        };
        let status = request.send().await?.status();
        if status.is_success() {
            Ok(())
        } else {
            Err(SendError::Status(status))
        }
    }

    /// Starts the program without a shell. Variables that start with `RALPH_` would be settings of a `ralph` that it starts.
    async fn run(&self, words: &[String], notice: &Notice) -> Result<(), SendError> {
        let program = words.first().cloned().unwrap_or_default();
        let command = Command::new(program.clone())
            .args(words.iter().skip(1).cloned())
            .env("NOTIFY_EVENT", notice.event.name())
            .env("NOTIFY_TITLE", &notice.title)
            .env("NOTIFY_TEXT", &notice.text)
            .env("NOTIFY_RUN", notice.run())
            .stdin(notice.payload().to_string())
            .timeout(TIMEOUT);
        let reason = match self.host.run(&command, &mut Discard).await {
            Ok(exit) if exit.status.success() => return Ok(()),
            Ok(exit) => exit.status.to_string(),
            Err(error) => error.to_string(),
        };
        Err(SendError::Command { program, reason })
    }
}

/// A message of an incoming webhook. Without the escapes, a text could mention a whole channel.
fn slack_message(notice: &Notice) -> serde_json::Value {
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let mut text = format!("*{}*\n{}", escaped(&notice.title), escaped(&notice.text));
    if let Some(location) = notice
        .pull_request
        .as_ref()
        .filter(|location| !notice.text.contains(*location))
    {
        text = format!("{text}\n{}", escaped(location));
    }
    json!({ "text": text })
}

fn ntfy_message(request: RequestBuilder, notice: &Notice) -> RequestBuilder {
    let priority = match notice.event {
        NotifyEvent::Failed | NotifyEvent::NeedsAttention => "high",
        _ => "default",
    };
    let request = request
        .header("title", header_text(&notice.title))
        .header("priority", priority)
        .header("tags", notice.event.name())
        .body(notice.text.clone());
    let link = notice.pull_request.as_ref();
    match link.filter(|location| location.starts_with("https://") && location.is_ascii()) {
        Some(location) => request.header("click", location),
        None => request,
    }
}

/// A text as the value of a header: as it is, or in RFC 2047 if it has characters that headers have not.
fn header_text(text: &str) -> String {
    if text.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return text.to_owned();
    }
    format!("=?UTF-8?B?{}?=", STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::super::notice::notices;
    use super::super::notice::tests::{ended, facts, lines};
    use super::*;
    use crate::state::RunOutcomeKind;

    fn notice(text: &str) -> Notice {
        let mut found = notices(&facts(), &lines([ended(RunOutcomeKind::Failed)]));
        let mut notice = found.remove(0);
        text.clone_into(&mut notice.text);
        notice
    }

    #[test]
    fn a_text_cannot_mention_a_channel_of_slack() {
        let message = slack_message(&notice("<!channel> a & b"));
        let text = message["text"].as_str().unwrap();
        assert!(text.ends_with("&lt;!channel&gt; a &amp; b"), "{text}");
    }

    #[test]
    fn a_title_that_is_not_ascii_is_encoded() {
        assert_eq!(header_text("plain: text"), "plain: text");
        assert_eq!(header_text("grün"), "=?UTF-8?B?Z3LDvG4=?=");
    }

    #[rstest::rstest]
    #[case(500, false)]
    #[case(429, false)]
    #[case(404, true)]
    #[case(302, true)]
    fn only_what_may_pass_is_tried_again(#[case] status: u16, #[case] is_final: bool) {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(SendError::Status(status).is_final(), is_final);
    }
}
