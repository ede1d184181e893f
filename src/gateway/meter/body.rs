//! A response body whose usage is counted while it passes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::Reservation;
use crate::model::UsageReader;
use crate::usage::Usd;

/// A response body whose usage is counted at its end. Every piece passes without delay.
pub(in crate::gateway) struct MeteredBody {
    body: reqwest::Body,
    meter: Option<BodyMeter>,
}

/// Counts the usage of a response.
pub(in crate::gateway) struct BodyMeter {
    pub(in crate::gateway) reader: UsageReader,
    pub(in crate::gateway) reservation: Reservation,
    /// The cost in the headers of the response.
    pub(in crate::gateway) quoted: Option<Usd>,
}

impl MeteredBody {
    /// A body that `meter` counts; `None` when it costs nothing.
    pub(in crate::gateway) fn new(body: reqwest::Body, meter: Option<BodyMeter>) -> Self {
        Self { body, meter }
    }

    fn count(&mut self, is_complete: bool) {
        let Some(meter) = self.meter.take() else {
            return;
        };
        if let Some(mut usage) = meter.reader.finish(is_complete) {
            usage.quoted = meter.quoted.max(usage.quoted);
            meter.reservation.used(usage);
        }
        // Otherwise dropping the reservation counts the reserved amount.
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(context);
        match &poll {
            Poll::Ready(Some(Ok(frame))) => {
                let Some(meter) = &mut self.meter else {
                    return poll;
                };
                meter.reader.push(frame.data_ref().map_or(&[], |bytes| bytes));
                // Counted before the last piece is passed on, after which the client can make the next call.
                if meter.reader.is_over() || self.body.is_end_stream() {
                    self.count(true);
                }
            }
            Poll::Ready(None) => self.count(true),
            Poll::Ready(Some(Err(_))) => self.count(false),
            Poll::Pending => {}
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for MeteredBody {
    fn drop(&mut self) {
        self.count(false);
    }
}
