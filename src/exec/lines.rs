//! Splits bytes that arrive in chunks into lines.

/// The longest line that is emitted in one piece, in bytes.
const LONGEST: usize = 64 * 1024;

/// Splits a stream into lines. Holds the incomplete last line, at most [`LONGEST`] bytes between two calls.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    partial: Vec<u8>,
}

impl LineSplitter {
    /// Takes the next bytes and emits complete lines, and pieces of a line that is too long.
    pub(super) fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(String)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if self.partial.is_empty() {
                emit_line(&rest[..end], &mut emit);
            } else {
                self.partial.extend_from_slice(&rest[..end]);
                emit_line(&self.partial, &mut emit);
                self.partial.clear();
            }
            rest = &rest[end + 1..];
        }
        self.partial.extend_from_slice(rest);
        let emitted = emit_pieces(&self.partial, &mut emit);
        self.partial.drain(..emitted);
    }

    /// Emits the last line if the stream did not end with a line break.
    pub(super) fn finish(&mut self, mut emit: impl FnMut(String)) {
        if !self.partial.is_empty() {
            emit(lossy(&self.partial));
            self.partial.clear();
        }
    }
}

fn emit_line(line: &[u8], emit: &mut impl FnMut(String)) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let emitted = emit_pieces(line, emit);
    emit(lossy(&line[emitted..]));
}

/// Emits pieces while more than one is left. Returns the number of bytes emitted.
fn emit_pieces(bytes: &[u8], emit: &mut impl FnMut(String)) -> usize {
    let mut emitted = 0;
    while bytes.len() - emitted > LONGEST {
        let rest = &bytes[emitted..];
        let end = piece_end(rest);
        emit(lossy(&rest[..end]));
        emitted += end;
    }
    emitted
}

/// Where to cut without splitting a character, which has at most three continuation bytes.
fn piece_end(bytes: &[u8]) -> usize {
    (LONGEST - 3..=LONGEST)
        .rev()
        .find(|end| bytes[*end] & 0b1100_0000 != 0b1000_0000)
        .unwrap_or(LONGEST)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn lines_of(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut out) = (LineSplitter::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |line| out.push(line));
        }
        lines.finish(|line| out.push(line));
        out
    }

    #[rstest]
    #[case::nothing(&[], &[])]
    #[case::one_chunk(&[b"a\nb\n".as_slice()], &["a", "b"])]
    #[case::no_last_break(&[b"a\nb".as_slice()], &["a", "b"])]
    #[case::split_anywhere(&[b"a".as_slice(), b"b\n", b"\n", b"c"], &["ab", "", "c"])]
    #[case::carriage_returns(&[b"a\r\nb\rc\r".as_slice(), b"\n"], &["a", "b\rc"])]
    #[case::not_utf8(&[b"a\xffb\n".as_slice()], &["a\u{fffd}b"])]
    #[case::a_character_in_two_chunks(&[b"\xc3".as_slice(), b"\xa9\n"], &["\u{e9}"])]
    fn bytes_become_lines(#[case] chunks: &[&[u8]], #[case] expected: &[&str]) {
        assert_eq!(lines_of(chunks), expected);
    }

    #[rstest]
    #[case::as_long_as_a_piece(LONGEST, 1)]
    #[case::one_byte_more(LONGEST + 1, 2)]
    #[case::many_pieces(LONGEST * 5, 5)]
    fn a_long_line_arrives_in_pieces(#[case] length: usize, #[case] pieces: usize) {
        let line = "x".repeat(length) + "\n";
        assert_eq!(lines_of(&[line.as_bytes()]).len(), pieces);
        assert_eq!(
            lines_of(&line.as_bytes().chunks(1000).collect::<Vec<_>>()).len(),
            pieces
        );
    }

    #[test]
    fn no_character_is_cut_into_two_pieces() {
        for shift in 0..4 {
            let line = "x".repeat(shift) + &"\u{1f980}".repeat(40_000);
            let pieces = lines_of(&[line.as_bytes()]);
            assert!(pieces.iter().all(|piece| piece.len() <= LONGEST));
            assert!(pieces.concat() == line, "with {shift} bytes before");
        }
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_chunked_does_not_matter(
            text in "([a-z\u{e9}]|\n|\r){0,200}",
            size in 1usize..20,
        ) {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(lines_of(&chunks), text.lines().map(str::to_owned).collect::<Vec<_>>());
        }
    }
}
