//! Cutting text without cutting a character.

/// The longest beginning of at most `limit` bytes.
pub(super) fn beginning(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The longest end of at most `limit` bytes.
pub(super) fn end(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A Markdown list.
pub(super) fn list(items: &[String]) -> String {
    let lines: Vec<String> = items.iter().map(|item| format!("- {}\n", item.trim())).collect();
    lines.concat()
}
