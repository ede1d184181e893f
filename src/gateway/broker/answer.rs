//! The bodies of answers: the service's own as it comes, or words of the broker's.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::gateway::meter::MeteredBody;

/// The body of an answer.
pub(super) enum Answer {
    /// Known whole.
    Whole(Option<Bytes>),
    /// Passed on as it comes.
    Passing(MeteredBody),
}

/// An answer of the broker's own.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Answer> {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Answer::Whole(Some(text.into())));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

impl Body for Answer {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passing(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Passing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Passing(body) => body.size_hint(),
        }
    }
}
