//! Forwards one call with the real credential, and passes its response back.

use bytes::{Bytes, BytesMut};
use http_body_util::{Either, Full};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, SET_COOKIE};
use hyper::{Method, Response, StatusCode};
use reqwest::Url;
use serde_json::Value;

use super::BrokerRun;
use super::body::BrokerBody;
use super::headers;
use super::refusal::BrokerRefusal;
use super::upstream::ModelUpstream;
use crate::gateway::meter::{BodyMeter, MeterNotice, MeteredBody, Reservation};
use crate::model::{ModelApi, ModelRoute, UsageReader, quoted_cost, retry_after};
use crate::secret::{Redactor, Secret};

/// The most bytes of an error response that are passed back.
const MAX_ERROR_BODY: usize = 64 << 10;

/// A call without the credentials of the sandbox.
pub(super) struct OutgoingCall {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Sends a call and passes its response back.
pub(super) async fn forward(
    run: &BrokerRun,
    upstream: &ModelUpstream,
    route: &ModelRoute,
    mut call: OutgoingCall,
) -> Result<Response<BrokerBody>, BrokerRefusal> {
    let credential = upstream
        .source
        .current()
        .await
        .map_err(BrokerRefusal::NoCredential)?;
    let reservation = match route.api {
        Some(api) => {
            let metered = (api.parse_call)(call.url.path(), call.body).map_err(BrokerRefusal::Call)?;
            call.body = metered.body;
            let reserved = run.meter.reserve(&metered.model, metered.worst).await;
            Some(reserved.map_err(BrokerRefusal::Budget)?)
        }
        None => None,
    };
    let response = match send(run, upstream, &credential, call).await {
        Ok(response) => response,
        Err(refusal) => {
            if let Some(reservation) = reservation.filter(|_| was_not_sent(&refusal)) {
                reservation.free();
            }
            return Err(refusal);
        }
    };
    if response.status().is_success() {
        let meter = route.api.zip(reservation);
        return Ok(pass_metered(response, meter, &credential));
    }
    if let Some(reservation) = reservation.filter(|_| is_free(response.status())) {
        reservation.free();
    }
    let passed = pass_service_error(run, upstream, response, &credential).await;
    if matches!(passed, Err(BrokerRefusal::CredentialRefused { .. })) {
        upstream.source.invalidate().await;
    }
    passed
}

async fn send(
    run: &BrokerRun,
    upstream: &ModelUpstream,
    credential: &Secret,
    call: OutgoingCall,
) -> Result<reqwest::Response, BrokerRefusal> {
    let (name, value) = upstream
        .header(credential)
        .map_err(|_| BrokerRefusal::InvalidCredential {
            remedy: upstream.remedy(),
        })?;
    let mut headers = call.headers;
    headers.insert(name, value);
    let request = run.broker.http.request(call.method, call.url);
    let sent = request.headers(headers).body(call.body).send().await;
    sent.map_err(|error| BrokerRefusal::Unreachable(error.without_url()))
}

/// Whether a call never reached the service, so that it costs nothing. The service may have worked on an interrupted one.
fn was_not_sent(refusal: &BrokerRefusal) -> bool {
    match refusal {
        BrokerRefusal::Unreachable(error) => error.is_connect(),
        _ => true,
    }
}

/// Whether the service refused a call before it did any work. A model gateway may have to pay for a call that timed out.
fn is_free(status: StatusCode) -> bool {
    match status {
        StatusCode::REQUEST_TIMEOUT => false,
        StatusCode::SERVICE_UNAVAILABLE => true,
        _ => !status.is_server_error() || status.as_u16() == 529,
    }
}

/// Passes a response back and counts its usage.
fn pass_metered(
    response: reqwest::Response,
    metered: Option<(&'static ModelApi, Reservation)>,
    credential: &Secret,
) -> Response<BrokerBody> {
    let text = |name: HeaderName| {
        let value = response.headers().get(name);
        value.and_then(|value| value.to_str().ok())
    };
    let meter = metered.map(|(api, reservation)| BodyMeter {
        reader: UsageReader::new(
            api,
            text(CONTENT_TYPE).unwrap_or_default(),
            text(CONTENT_ENCODING),
        ),
        reservation,
        quoted: quoted_cost(response.headers()),
    });
    pass(response, meter, credential)
}

/// Passes a response back as it arrives.
pub(super) fn pass(
    response: reqwest::Response,
    meter: Option<BodyMeter>,
    credential: &Secret,
) -> Response<BrokerBody> {
    let response: hyper::Response<reqwest::Body> = response.into();
    let (head, body) = response.into_parts();
    let mut passed = Response::new(Either::Right(MeteredBody::new(body, meter)));
    *passed.status_mut() = head.status;
    *passed.headers_mut() = response_headers(&head.headers, credential);
    passed
}

/// Passes an error response back, or replaces it by one of the broker.
async fn pass_service_error(
    run: &BrokerRun,
    upstream: &ModelUpstream,
    response: reqwest::Response,
    credential: &Secret,
) -> Result<Response<BrokerBody>, BrokerRefusal> {
    let (status, headers) = (response.status(), response.headers().clone());
    if status.is_redirection() {
        return Err(BrokerRefusal::Redirected);
    }
    let body = read_start(response).await;
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    if (upstream.service.refuses_credential)(status.as_u16(), &error) {
        let remedy = upstream.remedy();
        return Err(BrokerRefusal::CredentialRefused { remedy });
    }
    // OpenAI: the account has no credit left, so waiting does not help.
    let has_no_credit = ["type", "code"]
        .iter()
        .any(|field| error["error"][field] == "insufficient_quota");
    if is_rate_limit(status, &headers) && !has_no_credit {
        let until = retry_after(&headers).map(|wait| run.meter.now() + wait);
        let status = status.as_u16();
        run.meter.notify(MeterNotice::RateLimited { status, until });
    }
    Ok(error_response(status, &headers, &body, credential))
}

/// Passes an error response back without the credential, which some services repeat.
pub(super) async fn pass_error(response: reqwest::Response, credential: &Secret) -> Response<BrokerBody> {
    let (status, headers) = (response.status(), response.headers().clone());
    error_response(status, &headers, &read_start(response).await, credential)
}

fn error_response(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    credential: &Secret,
) -> Response<BrokerBody> {
    let text = Redactor::new([credential.clone()]).redact(&String::from_utf8_lossy(body));
    let mut response = Response::new(Either::Left(Full::new(text.into())));
    *response.status_mut() = status;
    *response.headers_mut() = response_headers(headers, credential);
    response.headers_mut().remove(CONTENT_LENGTH);
    response
}

fn is_rate_limit(status: StatusCode, headers: &HeaderMap) -> bool {
    match status.as_u16() {
        429 | 529 => true,
        503 => headers.contains_key("retry-after"),
        _ => false,
    }
}

/// The headers of a response without cookies, the credential and those of the connection.
fn response_headers(headers: &HeaderMap, credential: &Secret) -> HeaderMap {
    let redactor = Redactor::new([credential.clone()]);
    let is_secret = |value: &[u8]| redactor.finds_secret_in(&String::from_utf8_lossy(value));
    let kept = headers.iter().filter(|(name, value)| {
        !headers::is_hop_by_hop(name) && *name != SET_COOKIE && !is_secret(value.as_bytes())
    });
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The start of an error body. A body that is cut off still has its status.
async fn read_start(mut response: reqwest::Response) -> Bytes {
    let mut body = BytesMut::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_ERROR_BODY {
            body.truncate(MAX_ERROR_BODY);
            break;
        }
    }
    body.freeze()
}
