//! Response bodies: that of a service as it arrives, or one of the broker.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;

use crate::gateway::meter::MeteredBody;

/// The body of a response.
pub(super) type BrokerBody = Either<Full<Bytes>, MeteredBody>;

/// A response of the broker as JSON.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<BrokerBody> {
    respond(status, "application/json", value.to_string())
}

/// A response of the broker.
pub(super) fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<BrokerBody> {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
