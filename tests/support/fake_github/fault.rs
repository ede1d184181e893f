//! Injected faults, and answers that come from before the last write.

use std::time::{Duration, Instant};

/// A fault of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The answer has this status; the request is not executed.
    Status(u16),
    /// The request is executed, then the answer has this status.
    ExecutedThenStatus(u16),
    /// The connection closes; the request is not executed. For git, as for `DroppedAfter`, it closes within the answer.
    DroppedBefore,
    /// The request is executed, then the connection closes without an answer.
    DroppedAfter,
    /// The request is executed, and the answer comes this much later.
    Slow(Duration),
    /// One answer of the secondary limit, with this status (403 or 429) and perhaps `Retry-After` in seconds.
    SecondaryLimit { status: u16, retry_after: Option<u32> },
    /// A refusal of GraphQL, which has status 200; the request is not executed. The type of the error, and its message.
    GraphQl(&'static str, &'static str),
}

/// A fault that waits for its request.
pub struct PendingFault {
    pub method: String,
    pub prefix: String,
    pub fault: Fault,
}

/// How long answers come from before a write.
#[derive(Clone, Copy, Debug)]
pub enum Lag {
    /// So many more requests.
    Requests(u32),
    /// This long after the write.
    Time(Duration),
}

impl Lag {
    /// The lag of a write that was made now.
    pub fn begin(self) -> LagLeft {
        match self {
            Self::Requests(number) => LagLeft::Requests(number),
            Self::Time(time) => LagLeft::Until(Instant::now() + time),
        }
    }
}

/// What is left of a lag.
#[derive(Clone, Copy, Debug)]
pub enum LagLeft {
    Requests(u32),
    Until(Instant),
}

impl LagLeft {
    /// Whether it holds for one more request, which is counted.
    pub fn still_holds(&mut self) -> bool {
        match self {
            Self::Requests(0) => false,
            Self::Requests(left) => {
                *left -= 1;
                true
            }
            Self::Until(end) => Instant::now() < *end,
        }
    }
}
