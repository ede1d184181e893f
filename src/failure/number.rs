//! Numbers that identify a process, a thread, an address or a moment.

use super::scan::{Scan, is_word};

/// Ports that systems hand out by themselves. A lower one is the fixed port of a service, and says which one was not reachable.
const EPHEMERAL_PORTS: std::ops::RangeInclusive<u64> = 32_768..=65_535;
/// Seconds since 1970 of the years 2017 to 2036.
const EPOCH_SECONDS: std::ops::Range<u64> = 1_490_000_000..2_100_000_000;
/// The least digits of a process id that is recognised by its place alone.
const BARE_PID_DIGITS: usize = 4;

/// A place in a line.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) before: &'a [u8],
    pub(super) rest: &'a [u8],
    /// What follows the timestamp of the line, up to here.
    pub(super) since_stamp: Option<&'a [u8]>,
}

/// The length of what stands at this place and differs from run to run, and its name.
pub(super) fn identifier(place: Place<'_>) -> Option<(usize, &'static str)> {
    let word = place.rest;
    let length = word.iter().position(|byte| !is_word(*byte)).unwrap_or(word.len());
    let word = &word[..length];
    let after = &place.rest[length..];
    if let Some(length) = uuid(place.rest) {
        return Some((length, "<uuid>"));
    }
    let next = after.first().copied();
    if is_address(word, place.before) {
        return Some((length, "<address>"));
    }
    if is_hash(word, place.before) {
        return Some((length, "<hash>"));
    }
    if !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if let Some(fraction) = epoch(word, after) {
        return Some((length + fraction, "<time>"));
    }
    if is_port(word, place.before) {
        return Some((length, "<port>"));
    }
    if follows_keyword(place.before, word.len())
        || is_bracketed_pid(word, place, next)
        || is_bare_pid(word, place, after)
    {
        return Some((length, "<id>"));
    }
    None
}

fn uuid(text: &[u8]) -> Option<usize> {
    let mut scan = Scan::new(text);
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            scan.one_of(b"-")?;
        }
        scan.run(|byte| byte.is_ascii_hexdigit(), length, length)?;
    }
    scan.at_word_end().then_some(scan.len())
}

/// `0x7ffd00a1`. A short number such as `0x1f` is a value, except as the offset of a stack frame: `+0x1d`.
fn is_address(word: &[u8], before: &[u8]) -> bool {
    let Some(hex) = word.strip_prefix(b"0x").or_else(|| word.strip_prefix(b"0X")) else {
        return false;
    };
    hex.iter().all(u8::is_ascii_hexdigit) && (hex.len() >= 6 || before.ends_with(b"+"))
}

/// Hashes, and addresses without `0x`: words of hexadecimal digits with both letters and numbers.
fn is_hash(word: &[u8], before: &[u8]) -> bool {
    let is_symbol_hash = word.len() == 17 && word[0] == b'h' && before.ends_with(b"::");
    let word = if is_symbol_hash { &word[1..] } else { word };
    if word.len() < 6 || !word.iter().all(u8::is_ascii_hexdigit) {
        return false;
    }
    let (mut digits, mut letters) = (false, false);
    for byte in word {
        digits |= byte.is_ascii_digit();
        letters |= byte.is_ascii_alphabetic();
    }
    // `Shape@1b6d3586`, `shapes-0123456789012345`.
    let is_java = matches!(before, [.., name, b'@'] if is_word(*name)) && word.len() <= 8;
    let is_cargo = before.ends_with(b"-") && word.len() == 16;
    digits && ((letters && word.len() >= 7) || word.len() >= 32 || is_java || is_cargo)
}

/// The length of the fraction after a number of seconds, milliseconds, microseconds or nanoseconds since 1970.
fn epoch(word: &[u8], after: &[u8]) -> Option<usize> {
    if !matches!(word.len(), 10 | 13 | 16 | 19) || !EPOCH_SECONDS.contains(&value(&word[..10])) {
        return None;
    }
    let mut scan = Scan::new(after);
    let _ = scan.attempt(|scan| {
        scan.one_of(b".")?;
        scan.digits(1, 9).map(|_| ())
    });
    scan.at_word_end().then_some(scan.len())
}

/// `127.0.0.1:43211`, `[::1]:43211`, `:43211`, `port 43211`.
fn is_port(word: &[u8], before: &[u8]) -> bool {
    if word.len() != 5 || !EPHEMERAL_PORTS.contains(&value(word)) {
        return false;
    }
    if ends_with_keyword(before, &["port", "ports"]) {
        return true;
    }
    let Some(host) = before.strip_suffix(b":") else {
        return false;
    };
    let start = host
        .iter()
        .rposition(|byte| !is_word(*byte) && !b".-".contains(byte));
    let name = &host[start.map_or(0, |at| at + 1)..];
    let is_ip = name.contains(&b'.') && name.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_ip
        || name == b"localhost"
        || (name.is_empty() && !host.is_empty())
        || host[..host.len() - name.len()].ends_with(b"://")
}

/// `pid 12`, `[pid=12]`, `goroutine 18`, `Thread-3`, `--seed 7`.
fn follows_keyword(before: &[u8], digits: usize) -> bool {
    ends_with_keyword(before, &["pid", "tid", "lwp", "ppid", "goroutine", "shuffle"])
        || ends_with_suffix(before, &["thread", "threadid", "seed"])
        || (digits >= 3 && ends_with_keyword(before, &["process"]))
        || before.ends_with(b"(node:")
        || is_thread_of_rust(before)
}

/// `thread 'main' (12) panicked`.
fn is_thread_of_rust(before: &[u8]) -> bool {
    before.starts_with(b"thread '") && before.ends_with(b"' (")
}

fn ends_with_keyword(before: &[u8], words: &[&str]) -> bool {
    let before = without_separators(before);
    words.iter().any(|word| {
        ends_with(before, word)
            && !before[..before.len() - word.len()]
                .last()
                .is_some_and(|byte| is_word(*byte))
    })
}

/// Whether a word before a number ends in one of these, whatever its case.
pub(super) fn ends_with_suffix(before: &[u8], words: &[&str]) -> bool {
    let before = without_separators(before);
    words.iter().any(|word| ends_with(before, word))
}

fn ends_with(text: &[u8], word: &str) -> bool {
    let start = text.len().checked_sub(word.len());
    start.is_some_and(|start| text[start..].eq_ignore_ascii_case(word.as_bytes()))
}

/// Without the up to three separators between a keyword and its number. There is at least one.
fn without_separators(before: &[u8]) -> &[u8] {
    let count = before
        .iter()
        .rev()
        .take_while(|byte| b" :=#([<-\"'".contains(byte))
        .count();
    if (1..=3).contains(&count) {
        &before[..before.len() - count]
    } else {
        &[]
    }
}

/// `cron[12]:`, `job (1234)`, `[1234]`: a bracket at the start of a line or soon after its timestamp.
fn is_bracketed_pid(word: &[u8], place: Place<'_>, next: Option<u8>) -> bool {
    let close = match place.before.last() {
        Some(b'[') => b']',
        Some(b'(') => b')',
        Some(b'<') => b'>',
        Some(b'{') => b'}',
        _ => return false,
    };
    if next != Some(close) {
        return false;
    }
    if let Some(text) = place.since_stamp {
        return is_log_label(&text[..text.len() - 1]);
    }
    let text = &place.before[..place.before.len() - 1];
    let name = |byte: &u8| is_word(*byte) || b".-/".contains(byte);
    word.len() >= BARE_PID_DIGITS && text.len() <= 40 && text.iter().all(name)
}

/// Whether a text between a timestamp and a bracket is a host and a program (`host cron`), or levels (`] ERROR `).
fn is_log_label(text: &[u8]) -> bool {
    if text.len() > 80 {
        return false;
    }
    let is_attached = text.last().is_some_and(|byte| is_word(*byte));
    let mut words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    if is_attached {
        words.count() <= 2
    } else {
        words.all(|word| !word.iter().any(u8::is_ascii_lowercase))
    }
}

/// `2026-01-02 03:04:05 12345 …`, `run.sh: line 3: 12345 Killed`, `==12345==`, `1234#5678:`.
fn is_bare_pid(word: &[u8], place: Place<'_>, after: &[u8]) -> bool {
    let before = place.before;
    if before.ends_with(b"==") && after.starts_with(b"==") {
        return true;
    }
    if after.starts_with(b"#") && after.get(1).is_some_and(u8::is_ascii_digit) && place.since_stamp.is_some()
    {
        return true;
    }
    if let Some(text) = place.since_stamp
        && text.iter().all(|byte| b" ]:-[".contains(byte))
    {
        return word.len() >= BARE_PID_DIGITS;
    }
    is_killed_job(before, after)
}

/// bash reports a job that a signal ended: `run.sh: line 3: 12345 Segmentation fault`.
fn is_killed_job(before: &[u8], after: &[u8]) -> bool {
    let Some(before) = before.trim_ascii_end().strip_suffix(b":") else {
        return false;
    };
    let digits = before
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let reason = after.trim_ascii_start().first();
    digits > 0
        && before[..before.len() - digits].ends_with(b": line ")
        && after.starts_with(b" ")
        && reason.is_some_and(u8::is_ascii_uppercase)
}

fn value(digits: &[u8]) -> u64 {
    digits
        .iter()
        .fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
}
