//! How long to wait for an endpoint, and how often to ask again.

use std::num::NonZeroU32;
use std::time::Duration;

/// How long the client waits and how often it asks again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For the next byte of an answer, the first one too.
    pub idle: Duration,
    /// When an attempt failed in a way that another may mend.
    pub retry: RetryPolicy,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            retry: RetryPolicy::default(),
        }
    }
}

/// Exponential backoff with full jitter: before the n-th retry a random time up to `base * 2^(n-1)`, at most `cap`.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// How often to try in all.
    pub attempts: NonZeroU32,
    /// The longest wait before the first retry.
    pub base: Duration,
    /// The longest wait before any retry.
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
    /// How long to wait once this many attempts have failed.
    pub(super) fn delay(&self, failed: u32) -> Duration {
        self.longest_delay(failed).mul_f64(fastrand::f64())
    }

    fn longest_delay(&self, failed: u32) -> Duration {
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
            .map(|failed| policy.longest_delay(failed).as_millis())
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
            prop_assert!(policy.delay(failed) <= policy.longest_delay(failed));
            prop_assert!(policy.longest_delay(failed) <= policy.cap);
        }
    }
}
