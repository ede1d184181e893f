//! Sends spans in the background. A receiver that is slow or away costs spans, never time of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::secret::Secret;

use super::span::{Span, export_request};

/// How many spans wait for the receiver; further ones are dropped.
const QUEUE: usize = 2_048;
/// The most spans of one request.
const BATCH: usize = 512;
/// How often spans are sent.
const INTERVAL: Duration = Duration::from_secs(5);
/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long a flush waits.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Where spans are sent.
#[derive(Clone, Debug)]
pub struct OtlpEndpoint {
    url: String,
    headers: HeaderMap,
}

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The headers are malformed. Their values are not shown: they contain credentials.
    #[error("the headers are not `name=value`, separated by commas, with `%20` for a space")]
    Headers,
    /// The client could not be made.
    #[error("cannot create the HTTP client")]
    Client(#[source] reqwest::Error),
}

impl OtlpEndpoint {
    /// A receiver at a base address, with further headers as OpenTelemetry writes them: `name=value`, separated by commas.
    pub fn new(base_url: &str, headers: Option<&Secret>) -> Result<Self, ExporterError> {
        let mut map = HeaderMap::new();
        let text = headers.map_or("", Secret::expose);
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(ExporterError::Headers)?;
            let name: HeaderName = name.trim().parse().map_err(|_| ExporterError::Headers)?;
            let value = decoded(value.trim()).ok_or(ExporterError::Headers)?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| ExporterError::Headers)?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        Ok(Self {
            url: format!("{}/v1/traces", base_url.trim_end_matches('/')),
            headers: map,
        })
    }

    /// The values of its headers.
    pub fn secrets(&self) -> Vec<Secret> {
        let values = self.headers.values().filter_map(|value| value.to_str().ok());
        values.map(Secret::new).collect()
    }
}

/// A value without its escapes: OpenTelemetry encodes characters as URLs do. `None` if an escape is not whole.
fn decoded(value: &str) -> Option<String> {
    let mut pieces = value.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.bytes());
    }
    String::from_utf8(bytes).ok()
}

/// What the background task gets.
enum Message {
    Span(Box<Span>),
    Flush(oneshot::Sender<()>),
}

/// Sends spans in batches. What is queued when it is dropped is lost.
pub struct OtlpExporter {
    queue: mpsc::Sender<Message>,
    /// How many spans there were, and how many of them the receiver accepted.
    ended: AtomicU64,
    accepted: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl OtlpExporter {
    /// Starts the background task. Must be called in a tokio runtime.
    pub fn start(endpoint: OtlpEndpoint) -> Result<Self, ExporterError> {
        let http = Client::builder()
            .user_agent(concat!("ralph/", env!("CARGO_PKG_VERSION")))
            .default_headers(endpoint.headers)
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(ExporterError::Client)?;
        let (queue, messages) = mpsc::channel(QUEUE);
        let accepted = Arc::new(AtomicU64::new(0));
        let batch = Batch {
            http,
            url: endpoint.url,
            spans: Vec::new(),
            accepted: accepted.clone(),
        };
        let mut task = JoinSet::new();
        task.spawn(batch.serve(messages));
        Ok(Self {
            queue,
            ended: AtomicU64::new(0),
            accepted,
            _task: task,
        })
    }

    /// Queues a span, or drops it if the receiver is too slow.
    pub(super) fn send(&self, span: Span) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        // A span that finds no place is one that the receiver does not accept.
        let _ = self.queue.try_send(Message::Span(Box::new(span)));
    }

    /// Waits until what is queued was sent, but not for long. Returns how many spans the receiver has not accepted.
    pub(super) async fn flush(&self) -> u64 {
        let (done, sent) = oneshot::channel();
        let flushed = timeout(FLUSH_LIMIT, async {
            self.queue.send(Message::Flush(done)).await.ok()?;
            sent.await.ok()
        });
        // What was not sent by now counts as lost.
        let _ = flushed.await;
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.ended.load(Ordering::Relaxed).saturating_sub(accepted)
    }
}

/// The spans of the next request.
struct Batch {
    http: Client,
    url: String,
    spans: Vec<Span>,
    accepted: Arc<AtomicU64>,
}

impl Batch {
    async fn serve(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut ticks = interval(INTERVAL);
        loop {
            tokio::select! {
                message = messages.recv() => match message {
                    Some(Message::Span(span)) => {
                        self.spans.push(*span);
                        if self.spans.len() >= BATCH {
                            self.export().await;
                        }
                    }
                    Some(Message::Flush(done)) => {
                        self.export().await;
                        // The caller may have stopped waiting.
                        let _ = done.send(());
                    }
                    None => return,
                },
                _ = ticks.tick() => self.export().await,
            }
        }
    }

    async fn export(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let spans = std::mem::take(&mut self.spans);
        let sent = self
            .http
            .post(&self.url)
            .json(&export_request(&spans))
            .send()
            .await;
        let failed = match sent {
            Ok(answer) if answer.status().is_success() => {
                self.accepted.fetch_add(spans.len() as u64, Ordering::Relaxed);
                return;
            }
            Ok(answer) => format!("it answered {}", answer.status()),
            Err(error) => error.without_url().to_string(),
        };
        tracing::warn!(spans = spans.len(), failed, "traces were not exported");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let headers = Secret::new("authorization=Basic%20YTpi%3D, x-team=a=b");
        let endpoint = OtlpEndpoint::new("http://127.0.0.1:4318/", Some(&headers)).unwrap();
        assert_eq!(endpoint.url, "http://127.0.0.1:4318/v1/traces");
        assert_eq!(endpoint.headers["authorization"], "Basic YTpi=");
        assert_eq!(endpoint.headers["x-team"], "a=b");
    }

    #[test]
    fn malformed_headers_are_refused_without_showing_them() {
        for headers in ["no-value", "x=100%", "x=100%zz"] {
            let error = OtlpEndpoint::new("http://h", Some(&Secret::new(headers))).unwrap_err();
            assert!(!error.to_string().contains(headers), "{error}");
        }
    }
}
