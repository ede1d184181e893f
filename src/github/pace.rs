//! The pace of calls: GitHub limits what one account writes, and expects pauses.
//!
//! GitHub's secondary limits are 80 writes a minute and 500 an hour for an account, one at a time, a second apart.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};

const HOUR: Duration = Duration::from_secs(3600);

/// The limits that a client keeps.
#[derive(Clone, Debug)]
pub struct GitHubPace {
    /// The time from the end of a write to the next one.
    pub between_writes: Duration,
    /// The number of writes in an hour.
    pub writes_per_hour: usize,
    /// The pause after a secondary limit that names none. It doubles each time.
    pub secondary_pause: Duration,
    /// The longest that one call waits for rate limits.
    pub longest_wait: Duration,
    /// The first pause before a call that failed is repeated. It doubles each time.
    pub first_pause: Duration,
}

impl Default for GitHubPace {
    fn default() -> Self {
        Self {
            between_writes: Duration::from_secs(1),
            writes_per_hour: 400,
            secondary_pause: Duration::from_secs(60),
            longest_wait: Duration::from_secs(15 * 60),
            first_pause: Duration::from_secs(1),
        }
    }
}

/// When calls may be made. All calls with one credential share it.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// When the writes of the last hour ended, oldest first. Locked while a write is made, so there is one at a time.
    writes: Mutex<VecDeque<Instant>>,
    /// No call is made before this time.
    closed_until: Mutex<Option<Instant>>,
}

/// The right to make one write.
#[derive(Debug)]
pub(super) struct WriteTurn<'t> {
    writes: MutexGuard<'t, VecDeque<Instant>>,
}

impl<'t> WriteTurn<'t> {
    /// Waits for the pause after the last write.
    async fn begin(mut writes: MutexGuard<'t, VecDeque<Instant>>, pace: &GitHubPace) -> Self {
        if let Some(last) = writes.back() {
            sleep_until(*last + pace.between_writes).await;
        }
        writes.push_back(Instant::now());
        Self { writes }
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        // GitHub may have counted it at any time until now.
        if let Some(last) = self.writes.back_mut() {
            *last = Instant::now();
        }
    }
}

impl Throttle {
    /// Waits until a call may be made. If that takes longer than `longest`, returns how long it would.
    pub(super) async fn wait(&self, longest: Duration) -> Result<(), Duration> {
        let until = *self.closed_until.lock().await;
        let Some(until) = until else {
            return Ok(());
        };
        let pause = until.saturating_duration_since(Instant::now());
        if pause > longest {
            return Err(pause);
        }
        sleep_until(until).await;
        Ok(())
    }

    /// Waits until a write may be made. No other write is made while the turn lives. If that takes longer than
    /// [`GitHubPace::longest_wait`], returns how long it would.
    pub(super) async fn begin_write(&self, pace: &GitHubPace) -> Result<WriteTurn<'_>, Duration> {
        let give_up = Instant::now() + pace.longest_wait;
        loop {
            let mut writes = self.writes.lock().await;
            let now = Instant::now();
            while writes.front().is_some_and(|oldest| *oldest + HOUR <= now) {
                writes.pop_front();
            }
            // Urgent writes may have exceeded the limit.
            let excess = writes.len().checked_sub(pace.writes_per_hour);
            let Some(last) = excess.and_then(|excess| writes.get(excess)) else {
                return Ok(WriteTurn::begin(writes, pace).await);
            };
            let until = *last + HOUR;
            if until > give_up {
                return Err(until.saturating_duration_since(now));
            }
            // An urgent write must not wait for this one.
            drop(writes);
            sleep_until(until).await;
        }
    }

    /// Like [`Throttle::begin_write`] for a write that the limit of an hour does not hold back. It counts in that hour.
    pub(super) async fn begin_urgent_write(&self, pace: &GitHubPace) -> WriteTurn<'_> {
        WriteTurn::begin(self.writes.lock().await, pace).await
    }

    /// One of the two, for a claim.
    pub(super) async fn begin_claim(
        &self,
        pace: &GitHubPace,
        is_new: bool,
    ) -> Result<WriteTurn<'_>, Duration> {
        if is_new {
            return self.begin_write(pace).await;
        }
        Ok(self.begin_urgent_write(pace).await)
    }

    /// Makes all calls wait for this long.
    pub(super) async fn close_for(&self, pause: Duration) {
        let mut closed = self.closed_until.lock().await;
        let until = Instant::now() + pause;
        *closed = Some(closed.map_or(until, |known| known.max(until)));
    }
}

/// How long one call, or one use of git, has waited for rate limits.
#[derive(Debug)]
pub(super) struct LimitWaits {
    started: Instant,
    limits: u32,
}

impl LimitWaits {
    pub(super) fn begin() -> Self {
        Self {
            started: Instant::now(),
            limits: 0,
        }
    }

    /// How much longer it may wait.
    pub(super) fn left(&self, pace: &GitHubPace) -> Duration {
        pace.longest_wait.saturating_sub(self.started.elapsed())
    }

    /// Makes all calls wait after a limit, for the time that GitHub asked for, else for one that doubles each time. If that is
    /// longer than this one may wait, returns how long it is.
    pub(super) async fn close(
        &mut self,
        throttle: &Throttle,
        pace: &GitHubPace,
        asked: Option<Duration>,
    ) -> Result<(), Duration> {
        let doubled = pace.secondary_pause.saturating_mul(1 << self.limits.min(8));
        self.limits += 1;
        let pause = asked.unwrap_or(doubled);
        throttle.close_for(pause).await;
        if pause > self.left(pace) {
            Err(pause)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_are_a_second_apart_and_at_most_400_in_an_hour() {
        let (throttle, pace, start) = (Throttle::default(), GitHubPace::default(), Instant::now());
        for _ in 0..400 {
            drop(throttle.begin_write(&pace).await.unwrap());
        }
        assert_eq!(start.elapsed(), Duration::from_secs(399));
        // A call does not wait for so long, and keeps no other one waiting.
        let pause = throttle.begin_write(&pace).await.map(drop);
        assert_eq!(pause, Err(Duration::from_secs(3201)));
        // An urgent one is not held back, and counts.
        drop(throttle.begin_urgent_write(&pace).await);
        assert_eq!(start.elapsed(), Duration::from_secs(400));
        tokio::time::sleep(Duration::from_secs(2999)).await;
        drop(throttle.begin_write(&pace).await.unwrap());
        assert_eq!(start.elapsed(), HOUR + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_write_does_not_wait_for_one_that_waits_for_the_hour() {
        let (throttle, pace, start) = (Throttle::default(), GitHubPace::default(), Instant::now());
        for _ in 0..400 {
            drop(throttle.begin_write(&pace).await.unwrap());
        }
        tokio::time::sleep(Duration::from_secs(3000)).await;
        let waiting = async {
            drop(throttle.begin_write(&pace).await.unwrap());
            start.elapsed()
        };
        let urgent = async {
            tokio::task::yield_now().await;
            drop(throttle.begin_urgent_write(&pace).await);
            start.elapsed()
        };
        let (waited, urgent) = tokio::join!(waiting, urgent);
        assert_eq!(urgent, Duration::from_secs(3399));
        assert_eq!(waited, HOUR + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_begins_when_a_write_has_ended() {
        let (throttle, pace, start) = (Throttle::default(), GitHubPace::default(), Instant::now());
        let write = throttle.begin_write(&pace).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(write);
        drop(throttle.begin_write(&pace).await.unwrap());
        assert_eq!(start.elapsed(), Duration::from_millis(1300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_holds_for_every_call() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        throttle.close_for(Duration::from_secs(60)).await;
        throttle.close_for(Duration::from_secs(5)).await;
        assert_eq!(
            throttle.wait(Duration::from_secs(59)).await,
            Err(Duration::from_secs(60))
        );
        assert_eq!(throttle.wait(Duration::from_secs(60)).await, Ok(()));
        assert_eq!(start.elapsed(), Duration::from_secs(60));
    }
}
