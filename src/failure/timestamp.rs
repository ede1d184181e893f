//! Timestamps in the forms that tools print.

use super::scan::Scan;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const ZONES: [&str; 16] = [
    "UTC", "GMT", "Z", "CET", "CEST", "BST", "EST", "EDT", "CST", "CDT", "MST", "MDT", "PST", "PDT", "IST",
    "JST",
];

/// The length of the timestamp at the start of a text: a date with a time of day, or a time of day with seconds. A date
/// alone is not one, since tests compare dates.
pub(super) fn timestamp(text: &[u8], before: &[u8]) -> Option<usize> {
    let mut scan = Scan::new(text);
    if scan.attempt(date_and_time).is_none() {
        // `main.c:10:20:30` is a place.
        if before.ends_with(b":") {
            return None;
        }
        clock(&mut scan, Seconds::Required)?;
    }
    // `12:30:45:7` is not a time, nor is `10:20:30x`.
    let more = scan.peek() == Some(b':') && scan.rest().get(1).is_some_and(u8::is_ascii_digit);
    (scan.at_word_end() && !more).then_some(scan.len())
}

#[derive(Clone, Copy, PartialEq)]
enum Seconds {
    Required,
    Optional,
}

fn date_and_time(scan: &mut Scan<'_>) -> Option<()> {
    if scan.attempt(compact).is_some() {
        return Some(());
    }
    if scan.attempt(glog).is_some() {
        return Some(());
    }
    let _ = scan.attempt(|scan| {
        scan.word(&DAYS)?;
        let _ = scan.one_of(b",");
        scan.one_of(b" ").map(|_| scan.spaces())
    });
    scan.attempt(year_first)
        .or_else(|| scan.attempt(day_and_named_month))
        .or_else(|| scan.attempt(named_month_and_day))
        .or_else(|| scan.attempt(year_last))
        .or_else(|| scan.attempt(month_and_day))?;
    if scan.one_of(b"T_:-").is_none() {
        let _ = scan.one_of(b",");
        scan.one_of(b" ")?;
        scan.spaces();
    }
    if scan.attempt(clock_of_a_file_name).is_none() {
        clock(scan, Seconds::Optional)?;
    }
    zone(scan);
    let _ = scan.attempt(|scan| {
        scan.one_of(b" ")?;
        let year = scan.digits(4, 4)?;
        (year.starts_with(b"20") && scan.at_word_end()).then_some(())
    });
    Some(())
}

/// `20260102T030405Z`, `20260102-030405`.
fn compact(scan: &mut Scan<'_>) -> Option<()> {
    let date = scan.digits(8, 8)?;
    scan.one_of(b"T-_")?;
    let time = scan.digits(6, 6)?;
    let _ = scan.one_of(b"Z");
    (date.starts_with(b"20") && time[0] <= b'2').then_some(())
}

/// `E0102 03:04:05.678901`.
fn glog(scan: &mut Scan<'_>) -> Option<()> {
    scan.one_of(b"IWEF")?;
    scan.digits(4, 4)?;
    scan.one_of(b" ")?;
    clock(scan, Seconds::Required)
}

/// `2026-01-02`, `2026/01/02`.
fn year_first(scan: &mut Scan<'_>) -> Option<()> {
    scan.digits(4, 4)?;
    let separator = scan.one_of(b"-/.")?;
    scan.digits(1, 2)?;
    scan.one_of(&[separator])?;
    scan.digits(1, 2).map(|_| ())
}

/// `01/02/2026`, `2.1.2026`, `01/02/26`.
fn year_last(scan: &mut Scan<'_>) -> Option<()> {
    scan.digits(1, 2)?;
    let separator = scan.one_of(b"/.-")?;
    scan.digits(1, 2)?;
    scan.one_of(&[separator])?;
    let year = scan.digits(2, 4)?;
    (year.len() == 4 || (year.len() == 2 && separator == b'/')).then_some(())
}

/// `02 Jan 2026`, `02/Jan/2026`, `2-Jan-2026`.
fn day_and_named_month(scan: &mut Scan<'_>) -> Option<()> {
    scan.digits(1, 2)?;
    let separator = scan.one_of(b" /-")?;
    scan.word(&MONTHS)?;
    scan.one_of(&[separator])?;
    scan.digits(4, 4).map(|_| ())
}

/// `Jan  2`.
fn named_month_and_day(scan: &mut Scan<'_>) -> Option<()> {
    scan.word(&MONTHS)?;
    scan.one_of(b" ")?;
    scan.spaces();
    scan.digits(1, 2).map(|_| ())
}

/// `01-02`.
fn month_and_day(scan: &mut Scan<'_>) -> Option<()> {
    scan.digits(2, 2)?;
    scan.one_of(b"-")?;
    scan.digits(2, 2).map(|_| ())
}

/// `03:04:05.678`, `3:04:05 PM`.
fn clock(scan: &mut Scan<'_>, seconds: Seconds) -> Option<()> {
    scan.digits(1, 2)?;
    scan.one_of(b":")?;
    scan.digits(2, 2)?;
    let found = scan.attempt(|scan| {
        scan.one_of(b":")?;
        scan.digits(2, 2)?;
        let _ = scan.attempt(|scan| {
            scan.one_of(b".,")?;
            scan.digits(1, 9).map(|_| ())
        });
        Some(())
    });
    if found.is_none() && seconds == Seconds::Required {
        return None;
    }
    let _ = scan.attempt(|scan| {
        scan.spaces();
        scan.word(&["AM", "PM", "am", "pm"])
    });
    Some(())
}

/// `03_04_05_678`.
fn clock_of_a_file_name(scan: &mut Scan<'_>) -> Option<()> {
    scan.digits(2, 2)?;
    for _ in 0..2 {
        scan.one_of(b"_")?;
        scan.digits(2, 2)?;
    }
    let _ = scan.attempt(|scan| {
        scan.one_of(b"_")?;
        scan.digits(1, 9).map(|_| ())
    });
    Some(())
}

/// `Z`, `+02:00`, ` +0000`, ` UTC`.
fn zone(scan: &mut Scan<'_>) {
    let _ = scan.attempt(|scan| {
        scan.spaces();
        if scan.one_of(b"+-").is_some() {
            scan.digits(2, 4)?;
            let _ = scan.attempt(|scan| {
                scan.one_of(b":")?;
                scan.digits(2, 2).map(|_| ())
            });
            Some(())
        } else {
            scan.word(&ZONES)
        }
    });
}

/// Whether a timestamp after `before` is a value that is compared, such as `'2026-01-02 03:04:05'` in an assertion. The
/// quoted times of JSON (`"time":"…"`) and logfmt (`time="…"`) are not.
pub(super) fn is_compared_value(before: &[u8]) -> bool {
    let Some((b'"' | b'\'' | b'`', before)) = before.split_last() else {
        return false;
    };
    let is_logfmt = matches!(before, [.., key, b'='] if super::scan::is_word(*key));
    let key = before.trim_ascii_end();
    !is_logfmt && !key.ends_with(b"\":")
}
