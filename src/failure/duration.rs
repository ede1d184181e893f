//! Durations and rates.

use super::number::ends_with_suffix;
use super::scan::Scan;

/// Units that stand for a time on their own.
const UNITS: [&str; 24] = [
    "ns",
    "us",
    "\u{b5}s",
    "\u{3bc}s",
    "ms",
    "s",
    "sec",
    "secs",
    "second",
    "seconds",
    "min",
    "mins",
    "minute",
    "minutes",
    "hr",
    "hrs",
    "hour",
    "hours",
    "wallclock",
    "usr",
    "sys",
    "cusr",
    "csys",
    "CPU",
];
/// Units that may begin or continue a longer duration, such as `1h2m3s`.
const PARTS: [&str; 9] = ["d", "h", "m", "s", "ms", "us", "\u{b5}s", "\u{3bc}s", "ns"];

/// What is followed by a duration without a unit, such as `duration_ms: 4.2`.
const KEYWORDS: [&str; 3] = ["_ms", "duration", "elapsed"];

/// The length of the duration or rate at the start of a text: `0.12s`, `3 ms`, `1m23s`, `1h 2m`, `912.4 runs/s`.
pub(super) fn duration(text: &[u8], before: &[u8]) -> Option<usize> {
    let mut scan = Scan::new(text);
    number(&mut scan)?;
    if scan.at_word_end() && ends_with_suffix(before, &KEYWORDS) {
        return Some(scan.len());
    }
    let mut long = scan;
    if parts(&mut long).is_some() {
        return Some(long.len());
    }
    scan.spaces();
    let mut rate = scan;
    if rate.run(|byte| byte.is_ascii_alphabetic(), 1, 20).is_some()
        && rate.one_of(b"/").is_some()
        && rate.word(&["s", "sec", "second"]).is_some()
    {
        return Some(rate.len());
    }
    scan.word(&UNITS)?;
    Some(scan.len())
}

/// `0.12`, `1,5`, `1.2e-05`.
fn number(scan: &mut Scan<'_>) -> Option<()> {
    scan.digits(1, 18)?;
    let _ = scan.attempt(|scan| {
        scan.one_of(b".,")?;
        scan.digits(1, 18).map(|_| ())
    });
    let _ = scan.attempt(|scan| {
        scan.one_of(b"e")?;
        scan.one_of(b"-+")?;
        scan.digits(1, 3).map(|_| ())
    });
    Some(())
}

/// The rest of a duration of two or more parts, the largest first, after its first number.
fn parts(scan: &mut Scan<'_>) -> Option<()> {
    let first = unit(scan)?;
    let mut last = first;
    while let Some(unit) = next_part(scan, last) {
        last = unit;
    }
    (last > first && scan.at_word_end()).then_some(())
}

fn next_part(scan: &mut Scan<'_>, last: usize) -> Option<usize> {
    let mut found = None;
    scan.attempt(|scan| {
        scan.spaces();
        number(scan)?;
        found = unit(scan).filter(|unit| *unit > last);
        found.map(|_| ())
    })?;
    found
}

/// The place of a unit in [`PARTS`].
fn unit(scan: &mut Scan<'_>) -> Option<usize> {
    let found = scan.run(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii(), 1, 3)?;
    PARTS.iter().position(|part| part.as_bytes() == found)
}
