//! One call, paid for and sent with the real credential, and its answer.

use bytes::{Bytes, BytesMut};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, SET_COOKIE};
use hyper::{Method, Response, StatusCode};
use reqwest::Url;
use serde::Deserialize;

use super::Guest;
use super::answer::Answer;
use super::refusal::Refusal;
use super::route::Route;
use super::strip;
use super::upstream::Upstream;
use crate::gateway::meter::{Call, MeteredBody, Metering, Notice, Reader, Reservation};
use crate::model::{quoted_cost, retry_after};
use crate::secret::{Redactor, Secret};

/// The most of a refusal that is passed back.
const LONGEST_REFUSAL: usize = 64 << 10;

/// A call as it leaves the sandbox, without anything that authenticates.
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Sends a call and passes its answer back.
pub(super) async fn forward(
    guest: &Guest,
    upstream: &Upstream,
    route: Route,
    mut outgoing: Outgoing,
) -> Result<Response<Answer>, Refusal> {
    let credential = upstream.source.current().await.map_err(Refusal::NoCredential)?;
    let reservation = match route.metered() {
        Some(protocol) => {
            let call = Call::read(protocol, outgoing.body).map_err(Refusal::Call)?;
            outgoing.body = call.body;
            let reserved = guest.meter.reserve(&call.model, call.worst).await;
            Some(reserved.map_err(Refusal::Budget)?)
        }
        None => None,
    };
    let sent = send(guest, upstream, &credential, outgoing).await;
    let response = match sent {
        Ok(response) => response,
        Err(refusal) => {
            free_if_unsent(reservation, &refusal);
            return Err(refusal);
        }
    };
    if response.status().is_success() {
        return Ok(pass(response, reservation, &credential));
    }
    if let Some(reservation) = reservation.filter(|_| is_free(response.status())) {
        reservation.free();
    }
    let passed = pass_refusal(guest, response, &credential).await;
    if matches!(passed, Err(Refusal::Refused)) {
        upstream.source.invalidate().await;
    }
    passed
}

async fn send(
    guest: &Guest,
    upstream: &Upstream,
    credential: &Secret,
    outgoing: Outgoing,
) -> Result<reqwest::Response, Refusal> {
    let (name, value) = upstream.header(credential).map_err(|_| Refusal::BadCredential)?;
    let mut headers = outgoing.headers;
    headers.insert(name, value);
    let request = guest.broker.http.request(outgoing.method, outgoing.url);
    let request = request.headers(headers).body(outgoing.body);
    request
        .send()
        .await
        .map_err(|error| Refusal::Unreachable(error.without_url()))
}

/// A call that never reached the service costs nothing; one that broke off may have been worked on.
fn free_if_unsent(reservation: Option<Reservation>, refusal: &Refusal) {
    let unsent = match refusal {
        Refusal::Unreachable(error) => error.is_connect(),
        _ => true,
    };
    if let Some(reservation) = reservation.filter(|_| unsent) {
        reservation.free();
    }
}

/// Whether a refusal came before any work was done. A gateway that gave up on a model may have to pay for it.
fn is_free(status: StatusCode) -> bool {
    match status {
        StatusCode::REQUEST_TIMEOUT => false,
        StatusCode::SERVICE_UNAVAILABLE => true,
        _ => !status.is_server_error() || status.as_u16() == 529,
    }
}

/// Passes an answer back, counting what it used.
fn pass(
    response: reqwest::Response,
    reservation: Option<Reservation>,
    credential: &Secret,
) -> Response<Answer> {
    let response: hyper::Response<reqwest::Body> = response.into();
    let (head, body) = response.into_parts();
    let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let body = match reservation {
        Some(reservation) => MeteredBody::new(
            body,
            Metering {
                reader: Reader::of(text(CONTENT_TYPE).unwrap_or_default(), text(CONTENT_ENCODING)),
                reservation,
                quoted: quoted_cost(&head.headers),
            },
        ),
        None => MeteredBody::free(body),
    };
    passed(&head, body, credential)
}

/// An answer as it is passed back.
pub(super) fn passed(
    head: &hyper::http::response::Parts,
    body: MeteredBody,
    credential: &Secret,
) -> Response<Answer> {
    let mut passed = Response::new(Answer::Passing(body));
    *passed.status_mut() = head.status;
    *passed.headers_mut() = passed_back(&head.headers, credential);
    passed
}

/// Passes a refusal back, unless it is the broker's to answer.
async fn pass_refusal(
    guest: &Guest,
    response: reqwest::Response,
    credential: &Secret,
) -> Result<Response<Answer>, Refusal> {
    let (status, headers) = (response.status(), response.headers().clone());
    if status.is_redirection() {
        return Err(Refusal::Redirected);
    }
    let body = beginning(response).await;
    let said: Said = serde_json::from_slice(&body).unwrap_or_default();
    if status == StatusCode::UNAUTHORIZED || said.is("no_db_connection") {
        return Err(Refusal::Refused);
    }
    if asks_to_wait(status, &headers) && !said.is("insufficient_quota") {
        let until = retry_after(&headers).map(|wait| guest.meter.now() + wait);
        let status = status.as_u16();
        guest.meter.tell(Notice::RateLimited { status, until });
    }
    Ok(refused(status, &headers, &body, credential))
}

/// A refusal as it is passed back: without the credential, which some services repeat.
pub(super) fn refused(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    credential: &Secret,
) -> Response<Answer> {
    let text = Redactor::new([credential.clone()]).redact(&String::from_utf8_lossy(body));
    let mut refused = Response::new(Answer::Whole(Some(text.into())));
    *refused.status_mut() = status;
    *refused.headers_mut() = passed_back(headers, credential);
    refused.headers_mut().remove(CONTENT_LENGTH);
    refused
}

fn asks_to_wait(status: StatusCode, headers: &HeaderMap) -> bool {
    match status.as_u16() {
        429 | 529 => true,
        503 => headers.contains_key("retry-after"),
        _ => false,
    }
}

/// The headers of an answer that concern the sandbox.
fn passed_back(headers: &HeaderMap, credential: &Secret) -> HeaderMap {
    let redactor = Redactor::new([credential.clone()]);
    let shows = |value: &[u8]| redactor.finds_secret_in(&String::from_utf8_lossy(value));
    let kept = headers.iter().filter(|(name, value)| {
        !strip::is_of_the_connection(name) && *name != SET_COOKIE && !shows(value.as_bytes())
    });
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The beginning of a body; the status counts, even where the rest does not arrive.
pub(super) async fn beginning(mut response: reqwest::Response) -> Bytes {
    let mut body = BytesMut::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes);
        if body.len() > LONGEST_REFUSAL {
            body.truncate(LONGEST_REFUSAL);
            break;
        }
    }
    body.freeze()
}

/// An error in the form that both services have.
#[derive(Default, Deserialize)]
struct Said {
    error: SaidError,
}

#[derive(Default, Deserialize)]
struct SaidError {
    #[serde(rename = "type")]
    kind: Option<String>,
    code: Option<String>,
}

impl Said {
    fn is(&self, word: &str) -> bool {
        let SaidError { kind, code } = &self.error;
        [kind, code].into_iter().flatten().any(|own| own == word)
    }
}
