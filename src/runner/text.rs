//! Small text functions.

pub(super) use crate::text::{first_bytes, last_bytes};

/// A text as one word of a shell command, quoted where that is needed.
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
