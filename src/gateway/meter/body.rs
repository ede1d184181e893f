//! An answer that is counted while it passes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::{Ending, Reader, Reservation};
use crate::usage::Usd;

/// A body whose usage is counted when it is over. Every piece passes as soon as it is there.
pub(in crate::gateway) struct MeteredBody {
    body: reqwest::Body,
    metering: Option<Metering>,
}

/// How an answer is counted.
pub(in crate::gateway) struct Metering {
    pub(in crate::gateway) reader: Reader,
    pub(in crate::gateway) reservation: Reservation,
    /// What the head of the answer says that it cost.
    pub(in crate::gateway) quoted: Option<Usd>,
}

impl MeteredBody {
    /// An answer that costs something.
    pub(in crate::gateway) fn new(body: reqwest::Body, metering: Metering) -> Self {
        Self {
            body,
            metering: Some(metering),
        }
    }

    /// An answer that costs nothing.
    pub(in crate::gateway) fn free(body: reqwest::Body) -> Self {
        Self { body, metering: None }
    }

    fn count(&mut self, ending: Ending) {
        let Some(metering) = self.metering.take() else {
            return;
        };
        if let Some(mut usage) = metering.reader.finish(ending) {
            usage.quoted = metering.quoted.or(usage.quoted);
            metering.reservation.used(usage);
        }
        // Otherwise dropping the reservation spends it.
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
                let Some(metering) = &mut self.metering else {
                    return poll;
                };
                metering.reader.push(frame.data_ref().map_or(&[], |bytes| bytes));
                // Counted before the last piece is passed on: whoever has the whole answer can make the next call.
                if metering.reader.is_over() || self.body.is_end_stream() {
                    self.count(Ending::Whole);
                }
            }
            Poll::Ready(None) => self.count(Ending::Whole),
            Poll::Ready(Some(Err(_))) => self.count(Ending::CutShort),
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
        self.count(Ending::CutShort);
    }
}
