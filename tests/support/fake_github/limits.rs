//! The primary and the secondary rate limits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::reply::Reply;

/// The limits, which a test may change.
#[derive(Clone, Debug)]
pub struct LimitSettings {
    /// Requests an hour of one identity.
    pub primary: u32,
    /// Content writes within a `minute`, and within an `hour`.
    pub writes_a_minute: usize,
    pub writes_an_hour: usize,
    /// How long a minute and an hour are; shorter ones make tests quick. An identity that went over a limit waits a minute.
    pub minute: Duration,
    pub hour: Duration,
    /// How many writes of one identity may run at once.
    pub parallel_writes: usize,
    /// How long each write takes, so that parallel ones meet.
    pub write_takes: Duration,
    /// The status of a refusal by the secondary limit: 403 or 429. GitHub uses both.
    pub status: u16,
    /// Whether such a refusal has `Retry-After`. GitHub often leaves it out.
    pub retry_after: bool,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            primary: 5000,
            writes_a_minute: 80,
            writes_an_hour: 500,
            minute: Duration::from_secs(60),
            hour: Duration::from_secs(3600),
            parallel_writes: 100,
            write_takes: Duration::ZERO,
            status: 403,
            retry_after: false,
        }
    }
}

/// The limits and what was used of them.
#[derive(Default)]
pub struct Limits {
    pub settings: LimitSettings,
    used: BTreeMap<String, Used>,
}

#[derive(Default)]
struct Used {
    counted: u32,
    writes: Vec<Instant>,
    running: usize,
    waits_until: Option<Instant>,
}

impl Limits {
    /// Whether an identity went over the secondary limit and must wait.
    pub fn must_wait(&self, identity: &str) -> bool {
        let until = self.used.get(identity).and_then(|used| used.waits_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Begins a request, or refuses it. A write must be ended with [`Limits::end_write`].
    pub fn begin(&mut self, identity: &str, is_write: bool) -> Result<(), Reply> {
        if self.must_wait(identity) {
            return Err(self.secondary_refusal());
        }
        let settings = &self.settings;
        let used = self.used.entry(identity.to_owned()).or_default();
        if used.counted >= settings.primary {
            let message = format!("API rate limit exceeded for {identity}.");
            return Err(Reply::refuse(403, &message));
        }
        if !is_write {
            return Ok(());
        }
        let now = Instant::now();
        used.writes.retain(|write| now - *write < settings.hour);
        let last_minute = used
            .writes
            .iter()
            .filter(|write| now - **write < settings.minute)
            .count();
        let is_over = used.writes.len() >= settings.writes_an_hour
            || last_minute >= settings.writes_a_minute
            || used.running >= settings.parallel_writes;
        if is_over {
            used.waits_until = Some(now + settings.minute);
            return Err(self.secondary_refusal());
        }
        used.writes.push(now);
        used.running += 1;
        Ok(())
    }

    /// Ends a write.
    pub fn end_write(&mut self, identity: &str) {
        let used = self.used.entry(identity.to_owned()).or_default();
        used.running = used.running.saturating_sub(1);
    }

    /// Counts an answer towards the primary limit.
    pub fn count(&mut self, identity: &str) {
        self.used.entry(identity.to_owned()).or_default().counted += 1;
    }

    /// The primary limit, and what is left of it.
    pub fn primary(&self, identity: &str) -> (u32, u32) {
        let counted = self.used.get(identity).map_or(0, |used| used.counted);
        let limit = self.settings.primary;
        (limit, limit.saturating_sub(counted))
    }

    fn secondary_refusal(&self) -> Reply {
        let seconds = self.settings.minute.as_secs().max(1);
        let retry_after = self.settings.retry_after.then_some(seconds);
        secondary_refusal(self.settings.status, retry_after)
    }
}

/// What GitHub answers when the secondary limit is exceeded.
pub fn secondary_refusal(status: u16, retry_after: Option<u64>) -> Reply {
    let message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
    let reply = Reply::refuse(status, message);
    match retry_after {
        Some(seconds) => reply.with("retry-after", seconds.to_string()),
        None => reply,
    }
}
