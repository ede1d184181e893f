//! Timeouts and retries of calls.

use std::num::NonZeroU32;
use std::time::Duration;

/// Timeouts and retry policy of a client.
#[derive(Clone, Copy, Debug)]
pub struct CallTimeouts {
    /// Timeout for the connection.
    pub connect: Duration,
    /// Timeout for the next byte of an answer, including the first.
    pub idle: Duration,
    /// How often failed attempts are repeated.
    pub retry: RetryPolicy,
}

impl Default for CallTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            retry: RetryPolicy::default(),
        }
    }
}

/// Exponential backoff with full jitter. The n-th retry waits a random time up to `base * 2^(n-1)`, at most `cap`.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// The number of attempts, including the first.
    pub attempts: NonZeroU32,
    /// The maximum wait before the first retry.
    pub base: Duration,
    /// The maximum wait before any retry.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: const { NonZeroU32::new(4).unwrap() },
            base: Duration::from_millis(500),
            cap: Duration::from_secs(20),
        }
    }
}

impl RetryPolicy {
    /// How long to wait after this many failed attempts.
    pub(super) fn delay(&self, failed: u32) -> Duration {
        self.max_delay(failed).mul_f64(fastrand::f64())
    }

    fn max_delay(&self, failed: u32) -> Duration {
        let doublings = failed.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let policy = RetryPolicy::default();
        let longest: Vec<u128> = (1..=8)
            .map(|failed| policy.max_delay(failed).as_millis())
            .collect();
        assert_eq!(longest, [500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000]);
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_its_ceiling(failed: u32, base in 0u64..u64::MAX, cap in 0u64..1_000_000) {
            let policy = RetryPolicy {
                base: Duration::from_secs(base),
                cap: Duration::from_millis(cap),
                ..RetryPolicy::default()
            };
            prop_assert!(policy.delay(failed) <= policy.max_delay(failed));
            prop_assert!(policy.max_delay(failed) <= policy.cap);
        }
    }
}
