//! Paths below temporary directories, whose random parts differ from run to run.

use super::scan::is_word;

/// The length of the random beginning of a temporary path at the start of a text: the temporary directory and its first
/// entry. A file directly in it counts only when its name looks random; its extension stays.
pub(super) fn temp_path(text: &[u8]) -> Option<usize> {
    let root = root(text)?;
    let name = entry(&text[root..]);
    let end = root + name.len();
    if name.is_empty() {
        return None;
    }
    if text.get(end) == Some(&b'/') {
        return Some(end + pytest_session(&text[end..]));
    }
    looks_random(name).then(|| end - extension(name).len())
}

fn root(text: &[u8]) -> Option<usize> {
    let path = text.strip_prefix(b"/private").unwrap_or(text);
    let skipped = text.len() - path.len();
    for root in ["/tmp/", "/var/tmp/"] {
        if path.starts_with(root.as_bytes()) {
            return Some(skipped + root.len());
        }
    }
    // macOS: /var/folders/xy/0123abc/T/
    let folders = b"/var/folders/";
    let mut at = path.starts_with(folders).then_some(folders.len())?;
    for _ in 0..3 {
        at += entry(&path[at..]).len();
        if path.get(at) != Some(&b'/') {
            return None;
        }
        at += 1;
    }
    Some(skipped + at)
}

fn entry(text: &[u8]) -> &[u8] {
    let is_part = |byte: &u8| is_word(*byte) || b".-+@~%=".contains(byte);
    let end = text.iter().position(|byte| !is_part(byte)).unwrap_or(text.len());
    &text[..end]
}

/// pytest numbers its sessions: `/tmp/pytest-of-user/pytest-12/`.
fn pytest_session(rest: &[u8]) -> usize {
    let name = entry(&rest[1..]);
    match name.strip_prefix(b"pytest-") {
        Some(number) if number.iter().all(u8::is_ascii_digit) => name.len() + 1,
        _ => 0,
    }
}

fn looks_random(name: &[u8]) -> bool {
    let is_compiler_file = |name: &[u8]| name.starts_with(b"cc") && name.get(8) == Some(&b'.');
    let is_random_part = |part: &[u8]| {
        let has = |test: fn(&u8) -> bool| part.iter().skip(1).any(test);
        part.len() >= 6
            && (has(u8::is_ascii_digit) || (has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)))
    };
    name.starts_with(b"tmp")
        || is_compiler_file(name)
        || name.split(|byte| b"-._".contains(byte)).any(is_random_part)
}

/// `.txt` of `tmpa1b2c3.txt`; empty for `tmp.a1b2c3d4e5`.
fn extension(name: &[u8]) -> &[u8] {
    let Some(dot) = name.iter().rposition(|byte| *byte == b'.') else {
        return &[];
    };
    let letters = &name[dot + 1..];
    if letters.len() <= 4 && letters.iter().all(u8::is_ascii_lowercase) {
        &name[dot..]
    } else {
        &[]
    }
}
