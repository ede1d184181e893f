//! The time that an endpoint asks to wait.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;

/// The wait that the headers of a refusal ask for. LiteLLM forwards the provider's headers with a prefix.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let now = value(headers, "date").and_then(http_date);
    let wait = |name: &&str| value(headers, name).and_then(|text| parse(text, now));
    let retry_after = ["retry-after", "llm_provider-retry-after"].iter().find_map(wait);
    // Any of these limits may be the one that was reached.
    retry_after.or_else(|| RESETS.iter().filter_map(wait).max())
}

const RESETS: [&str; 11] = [
    "anthropic-ratelimit-unified-reset",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-reset",
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "llm_provider-x-ratelimit-reset",
    "llm_provider-x-ratelimit-reset-requests",
    "llm_provider-x-ratelimit-reset-tokens",
];

/// Longer waits are ignored as errors.
const MAX_WAIT: Duration = Duration::from_secs(366 * 24 * 3600);
/// Numbers from here on are Unix timestamps; smaller ones are durations in seconds.
const MIN_TIMESTAMP: f64 = 1e9;

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Parses seconds, a date (RFC 2822 or RFC 3339), a Unix timestamp, or a duration such as `6m0s`. Points in time are
/// compared with the endpoint's clock (`now`), which may differ from ours.
fn parse(text: &str, now: Option<Timestamp>) -> Option<Duration> {
    let wait = if let Ok(seconds) = text.parse::<f64>() {
        let since = if seconds < MIN_TIMESTAMP {
            0.0
        } else {
            now?.as_duration().as_secs_f64()
        };
        Duration::try_from_secs_f64(seconds - since)
    } else if let Some(then) = http_date(text).or_else(|| text.parse().ok()) {
        Duration::try_from(then.duration_since(now?)).or(Ok(Duration::ZERO))
    } else {
        Ok(Duration::try_from(text.parse::<SignedDuration>().ok()?).ok()?)
    };
    wait.ok().filter(|wait| *wait <= MAX_WAIT)
}

fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text)
        .ok()
        .map(|moment| moment.timestamp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const DATE: (&str, &str) = ("date", "Sun, 15 Nov 2026 00:06:30 GMT");

    #[rstest]
    #[case::seconds(&[("retry-after", "7")], Some(7_000))]
    #[case::parts_of_a_second(&[("retry-after", "0.25")], Some(250))]
    #[case::a_date(&[DATE, ("retry-after", "Sun, 15 Nov 2026 00:07:00 GMT")], Some(30_000))]
    #[case::a_date_gone_by(&[DATE, ("retry-after", "Sun, 15 Nov 2026 00:00:00 GMT")], Some(0))]
    #[case::a_date_without_a_clock(&[("retry-after", "Sun, 15 Nov 2026 00:07:00 GMT")], None)]
    #[case::through_litellm(&[("llm_provider-retry-after", "1")], Some(1_000))]
    #[case::the_nearer_word_counts(&[("llm_provider-retry-after", "1"), ("retry-after", "2")], Some(2_000))]
    #[case::the_longest_reset(&[("x-ratelimit-reset-requests", "120ms"), ("x-ratelimit-reset-tokens", "6m0s")], Some(360_000))]
    #[case::a_moment(&[DATE, ("x-ratelimit-reset", "1794701200")], Some(10_000))]
    #[case::a_moment_of_anthropic(&[DATE, ("anthropic-ratelimit-unified-reset", "1794701200")], Some(10_000))]
    #[case::a_date_of_anthropic(&[DATE, ("anthropic-ratelimit-tokens-reset", "2026-11-15T00:07:00Z")], Some(30_000))]
    #[case::retry_after_before_resets(&[("x-ratelimit-reset", "99"), ("retry-after", "3")], Some(3_000))]
    #[case::nonsense(&[("retry-after", "soon")], None)]
    #[case::negative(&[("retry-after", "-1")], None)]
    #[case::endless(&[("retry-after", "inf")], None)]
    #[case::too_long(&[("retry-after", "999999999")], None)]
    #[case::silence(&[], None)]
    fn waits_are_parsed(#[case] headers: &[(&'static str, &str)], #[case] millis: Option<u64>) {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        assert_eq!(retry_after(&headers), millis.map(Duration::from_millis));
    }

    proptest! {
        #[test]
        fn arbitrary_values_do_no_harm(text in "\\PC{0,40}|-?[0-9]{1,30}(\\.[0-9]+)?(e[0-9]{1,3})?") {
            let wait = parse(&text, http_date(DATE.1));
            prop_assert!(wait.is_none_or(|wait| wait <= MAX_WAIT));
        }
    }
}
