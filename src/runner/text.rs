//! Small text functions. Cuts never split a character.

/// The beginning of a text, at most `limit` bytes.
pub(super) fn first_bytes(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The end of a text, at most `limit` bytes.
pub(super) fn last_bytes(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A text as one word of a shell command, quoted where that is needed.
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A Markdown list.
pub(super) fn list(items: &[String]) -> String {
    let lines: Vec<String> = items.iter().map(|item| format!("- {}\n", item.trim())).collect();
    lines.concat()
}
