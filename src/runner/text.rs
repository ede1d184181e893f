//! Small text functions.

pub(super) use crate::text::{first_bytes, last_bytes, shell_word};
