//! Forwards one call with the real credential, and passes its response back.

use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, SET_COOKIE};
use hyper::{Request, Response, StatusCode};
use serde_json::Value;

use super::BrokerRun;
use super::body::BrokerBody;
use super::refusal::BrokerRefusal;
use super::upstream::ModelUpstream;
use super::{headers, serve};
use crate::gateway::meter::{BodyMeter, MeterNotice, MeteredBody, Reservation};
use crate::model::{CallRules, ModelApi, ModelRoute, UsageReader, quoted_cost, read_refusal, retry_after};
use crate::secret::{Redactor, Secret};

/// Sends a call of a sandbox with the real credential, and passes its response back.
pub(super) async fn forward(
    run: &BrokerRun,
    upstream: &ModelUpstream,
    route: Option<&ModelRoute>,
    request: Request<Incoming>,
) -> Result<Response<BrokerBody>, BrokerRefusal> {
    let (head, body) = request.into_parts();
    headers::check_phantom(&head.headers, &run.phantom)?;
    let path = head.uri.path();
    let route = route.ok_or_else(|| BrokerRefusal::path(&head.method, path))?;
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(BrokerRefusal::unreadable(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the request body is compressed, so it cannot be metered",
        ));
    }
    let service = upstream.service;
    headers::check_listed(&head.headers, service.headers, &run.exceptions.headers)?;
    let query = headers::check_query(head.uri.query(), service.parameters)?;
    let (body, _memory) = serve::read_body(&run.memory, body).await?;
    if route.api.is_none() && !body.is_empty() {
        let text = format!("{} {path} has no body", head.method);
        return Err(BrokerRefusal::unreadable(StatusCode::BAD_REQUEST, text));
    }
    let url = upstream.url(path, query.as_deref());
    let credential = upstream.source.current().await?;
    let (name, value) = upstream
        .header(&credential)
        .map_err(|_| BrokerRefusal::invalid_credential(&upstream.remedy()))?;
    let mut headers = headers::to_forward(&head.headers, service.headers, &run.exceptions.headers);
    headers.insert(name, value);
    let (body, reservation) = match route.api {
        Some(api) => {
            let rules = CallRules {
                fields: &run.exceptions.fields,
                allows_address: &|address| run.exceptions.allows_address(address),
            };
            let metered = api.parse(url.path(), rules, body)?;
            let reserved = run.meter.reserve(&metered.model, metered.worst).await?;
            (metered.body, Some(reserved))
        }
        None => (body, None),
    };
    let request = run.broker.http.request(head.method, url);
    let response = match request.headers(headers).body(body).send().await {
        Ok(response) => response,
        Err(error) => {
            // The service may have worked on an interrupted call.
            if let Some(reservation) = reservation.filter(|_| error.is_connect()) {
                reservation.free();
            }
            return Err(BrokerRefusal::unreachable(&error));
        }
    };
    if response.status().is_success() {
        let meter = route.api.zip(reservation);
        return Ok(pass_metered(response, meter, &credential));
    }
    if let Some(reservation) = reservation.filter(|_| is_free(response.status())) {
        reservation.free();
    }
    pass_service_error(run, upstream, response, &credential).await
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
    mut response: reqwest::Response,
    credential: &Secret,
) -> Result<Response<BrokerBody>, BrokerRefusal> {
    let (status, headers) = (response.status(), response.headers().clone());
    if status.is_redirection() {
        return Err(BrokerRefusal::redirected());
    }
    let body = read_refusal(&mut response).await;
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    if (upstream.service.refuses_credential)(status.as_u16(), &error) {
        upstream.source.invalidate().await;
        return Err(BrokerRefusal::credential_refused(&upstream.remedy()));
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
pub(super) async fn pass_error(mut response: reqwest::Response, credential: &Secret) -> Response<BrokerBody> {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = read_refusal(&mut response).await;
    error_response(status, &headers, &body, credential)
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
