//! A cursor over the bytes of a line.

/// Reads small patterns from the start of a text. A method that finds nothing returns `None` and stays where it is.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(super) fn len(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Whether no word continues here.
    pub(super) fn at_word_end(&self) -> bool {
        !self.peek().is_some_and(is_word)
    }

    pub(super) fn one_of(&mut self, set: &[u8]) -> Option<u8> {
        let byte = self.peek().filter(|byte| set.contains(byte))?;
        self.at += 1;
        Some(byte)
    }

    /// Bytes that `accept` takes: at least `least`, and no more than `most` in a row.
    pub(super) fn run(&mut self, accept: impl Fn(u8) -> bool, least: usize, most: usize) -> Option<&'a [u8]> {
        let found = self.rest();
        let found = &found[..found.len().min(most + 1)];
        let length = found
            .iter()
            .position(|byte| !accept(*byte))
            .unwrap_or(found.len());
        if !(least..=most).contains(&length) {
            return None;
        }
        self.at += length;
        Some(&found[..length])
    }

    pub(super) fn digits(&mut self, least: usize, most: usize) -> Option<&'a [u8]> {
        self.run(|byte| byte.is_ascii_digit(), least, most)
    }

    pub(super) fn spaces(&mut self) {
        while self.one_of(b" \t").is_some() {}
    }

    /// One of these, as a whole word.
    pub(super) fn word(&mut self, words: &[&str]) -> Option<()> {
        let word = words.iter().find(|word| {
            self.rest().starts_with(word.as_bytes())
                && !self.rest().get(word.len()).is_some_and(|byte| is_word(*byte))
        })?;
        self.at += word.len();
        Some(())
    }

    /// Applies `read`, or stays where it is.
    pub(super) fn attempt(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let mut ahead = *self;
        read(&mut ahead)?;
        *self = ahead;
        Some(())
    }
}

/// Whether a byte is part of a word. All bytes of characters outside ASCII are.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}
