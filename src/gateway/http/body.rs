//! How long a message is, and where it ends.

use super::head::{Fields, HeadError, RequestHead, ResponseHead, Version};

/// The longest line of a chunked body that is no data.
const LONGEST_LINE: usize = 8 * 1024;

/// What is left of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Bytes(u64),
    /// Chunks that say where they end.
    Chunked(Chunked),
    /// All that comes.
    UntilTheEnd,
}

impl Body {
    /// No body.
    pub(super) const NONE: Self = Self::Bytes(0);

    /// The body of a request. Two ways of saying how long it is are one too many.
    pub(super) fn of_request(head: &RequestHead) -> Result<Self, HeadError> {
        match declared(&head.fields, head.version)? {
            Declared::Nothing => Ok(Self::NONE),
            Declared::Bytes(length) => Ok(Self::Bytes(length)),
            Declared::Chunked => Ok(Self::Chunked(Chunked::new(Extensions::Refused))),
        }
    }

    /// The body of a response to a request of this method.
    pub(super) fn of_response(head: &ResponseHead, method: &str) -> Result<Self, HeadError> {
        let declared = declared(&head.fields, head.version)?;
        if method == "HEAD" || matches!(head.status, 100..200 | 204 | 304) {
            return Ok(Self::NONE);
        }
        match declared {
            Declared::Nothing => Ok(Self::UntilTheEnd),
            Declared::Bytes(length) => Ok(Self::Bytes(length)),
            Declared::Chunked => Ok(Self::Chunked(Chunked::new(Extensions::Taken))),
        }
    }

    /// How many of these bytes belong to it, which are then behind it.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, HeadError> {
        match self {
            Self::Bytes(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= length as u64;
                Ok(length)
            }
            Self::Chunked(chunked) => chunked.advance(bytes),
            Self::UntilTheEnd => Ok(bytes.len()),
        }
    }

    /// Whether all of it has come.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Bytes(left) => *left == 0,
            Self::Chunked(chunked) => chunked.part == Part::Over,
            Self::UntilTheEnd => false,
        }
    }
}

enum Declared {
    Nothing,
    Bytes(u64),
    Chunked,
}

fn declared(fields: &Fields, version: Version) -> Result<Declared, HeadError> {
    let unclear = HeadError::Length;
    let encoding = fields.one("transfer-encoding").map_err(|_| unclear)?;
    let length = fields.one("content-length").map_err(|_| unclear)?;
    match (encoding, length) {
        (None, None) => Ok(Declared::Nothing),
        (None, Some(length)) => parse_length(length).map(Declared::Bytes).ok_or(unclear),
        (Some(encoding), None) if version == Version::Http11 && encoding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Declared::Chunked)
        }
        _ => Err(unclear),
    }
}

fn parse_length(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Where in a chunked body one is. The bytes pass as they are; only their ends are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunked {
    part: Part,
    extensions: Extensions,
    line: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Size,
    Data(u64),
    AfterData,
    Trailer,
    Over,
}

/// Whether a chunk may say more than its size. Programs differ in where they think that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extensions {
    Taken,
    Refused,
}

impl Chunked {
    fn new(extensions: Extensions) -> Self {
        Self {
            part: Part::Size,
            extensions,
            line: Vec::new(),
        }
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<usize, HeadError> {
        let mut at = 0;
        while at < bytes.len() {
            match self.part {
                Part::Over => break,
                Part::Data(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    at += length;
                    let left = left - length as u64;
                    self.part = if left == 0 {
                        Part::AfterData
                    } else {
                        Part::Data(left)
                    };
                }
                Part::Size | Part::AfterData | Part::Trailer => {
                    self.line.push(bytes[at]);
                    at += 1;
                    self.look_at_line()?;
                }
            }
        }
        Ok(at)
    }

    /// Goes on to the next part when the line is whole.
    fn look_at_line(&mut self) -> Result<(), HeadError> {
        let unclear = HeadError::Length;
        let (before, last) = match self.line.as_slice() {
            [before @ .., last] => (before, *last),
            [] => return Ok(()),
        };
        if before.last() == Some(&b'\r') && last != b'\n' || self.line.len() > LONGEST_LINE {
            return Err(unclear);
        }
        if last != b'\n' {
            return Ok(());
        }
        let line = before.strip_suffix(b"\r").ok_or(unclear)?;
        self.part = match self.part {
            Part::Size => match parse_size(line, self.extensions).ok_or(unclear)? {
                0 => Part::Trailer,
                size => Part::Data(size),
            },
            Part::AfterData if line.is_empty() => Part::Size,
            Part::Trailer if line.is_empty() => Part::Over,
            Part::Trailer if is_trailer(line) => Part::Trailer,
            _ => return Err(unclear),
        };
        self.line.clear();
        Ok(())
    }
}

fn parse_size(line: &[u8], extensions: Extensions) -> Option<u64> {
    let digits = match line.iter().position(|byte| *byte == b';') {
        Some(at) if extensions == Extensions::Taken => line[..at].trim_ascii_end(),
        Some(_) => return None,
        None => line,
    };
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A trailer must not say what the head decides.
fn is_trailer(line: &[u8]) -> bool {
    let decides = ["transfer-encoding", "content-length", "host", "connection"];
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return false;
    };
    let name = &line[..colon];
    let shaped = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'_';
    !name.is_empty()
        && name.iter().all(shaped)
        && !decides
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
        && line
            .iter()
            .all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn request(fields: &str) -> Result<Body, HeadError> {
        let text = format!("POST / HTTP/1.1\r\n{fields}\r\n");
        Body::of_request(&RequestHead::parse(Bytes::from(text))?)
    }

    fn chunked(extensions: Extensions) -> Body {
        Body::Chunked(Chunked::new(extensions))
    }

    #[rstest]
    #[case::none("", Ok(Body::NONE))]
    #[case::length("Content-Length: 5\r\n", Ok(Body::Bytes(5)))]
    #[case::chunked("Transfer-Encoding: Chunked\r\n", Ok(chunked(Extensions::Refused)))]
    #[case::both("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(HeadError::Length))]
    #[case::two_lengths("Content-Length: 5\r\nContent-Length: 6\r\n", Err(HeadError::Length))]
    #[case::the_same_twice("Content-Length: 5\r\nContent-Length: 5\r\n", Err(HeadError::Length))]
    #[case::list("Content-Length: 5, 5\r\n", Err(HeadError::Length))]
    #[case::sign("Content-Length: +5\r\n", Err(HeadError::Length))]
    #[case::negative("Content-Length: -5\r\n", Err(HeadError::Length))]
    #[case::hex("Content-Length: 0x5\r\n", Err(HeadError::Length))]
    #[case::empty("Content-Length:\r\n", Err(HeadError::Length))]
    #[case::huge("Content-Length: 99999999999999999999\r\n", Err(HeadError::Length))]
    #[case::identity("Transfer-Encoding: identity\r\n", Err(HeadError::Length))]
    #[case::two_codings("Transfer-Encoding: gzip, chunked\r\n", Err(HeadError::Length))]
    #[case::hidden_coding("Transfer-Encoding: xchunked\r\n", Err(HeadError::Length))]
    #[case::twice(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        Err(HeadError::Length)
    )]
    fn a_request_says_its_length_in_one_way(#[case] fields: &str, #[case] expected: Result<Body, HeadError>) {
        assert_eq!(request(fields), expected);
    }

    #[rstest]
    #[case::until_the_end("200 OK", "", "GET", Body::UntilTheEnd)]
    #[case::head("200 OK", "Content-Length: 5\r\n", "HEAD", Body::NONE)]
    #[case::no_content("204 x", "", "GET", Body::NONE)]
    #[case::not_modified("304 x", "Content-Length: 5\r\n", "GET", Body::NONE)]
    #[case::length("200 OK", "Content-Length: 5\r\n", "GET", Body::Bytes(5))]
    #[case::chunked("200 OK", "Transfer-Encoding: chunked\r\n", "GET", chunked(Extensions::Taken))]
    fn a_response_ends_by_its_status_and_fields(
        #[case] status: &str,
        #[case] fields: &str,
        #[case] method: &str,
        #[case] expected: Body,
    ) {
        let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
        let head = ResponseHead::parse(Bytes::from(head)).unwrap();
        assert_eq!(Body::of_response(&head, method), Ok(expected));
    }

    #[rstest]
    #[case::one("5\r\nhello\r\n0\r\n\r\n", Extensions::Refused)]
    #[case::two("1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", Extensions::Refused)]
    #[case::trailer("0\r\nX-Sum: 1\r\n\r\n", Extensions::Refused)]
    #[case::extension("1;a=b\r\na\r\n0\r\n\r\n", Extensions::Taken)]
    fn chunks_end_where_they_say_however_they_come(#[case] text: &str, #[case] extensions: Extensions) {
        let more = format!("{text}GET / HTTP/1.1\r\n");
        let mut whole = chunked(extensions);
        assert_eq!(whole.advance(more.as_bytes()), Ok(text.len()));
        assert!(whole.is_over());
        let mut bytewise = chunked(extensions);
        for byte in text.as_bytes() {
            assert!(!bytewise.is_over());
            assert_eq!(bytewise.advance(&[*byte]), Ok(1));
        }
        assert!(bytewise.is_over());
    }

    #[rstest]
    fn chunks_that_can_be_read_in_two_ways_are_refused(
        #[values(
            "5\nhello\r\n",
            "5 \r\nhello",
            "+5\r\n",
            "0x5\r\n",
            "-1\r\n",
            "\r\n",
            "5;a\r\n",
            "g\r\n",
            "5\r\nhelloX\r\n",
            "5\r\nhello\n",
            "5\rX",
            "1000000000000000\r\n",
            "0\r\nContent-Length: 5\r\n",
            "0\r\n folded: x\r\n",
            "0\r\nnothing\r\n"
        )]
        text: &str,
    ) {
        assert_eq!(
            chunked(Extensions::Refused).advance(text.as_bytes()),
            Err(HeadError::Length),
            "{text:?}"
        );
    }

    proptest! {
        #[test]
        fn no_chunks_are_a_panic_or_fill_the_memory(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40),
        ) {
            let mut body = Chunked::new(Extensions::Taken);
            for piece in pieces {
                match body.advance(&piece) {
                    Ok(length) => prop_assert!(length <= piece.len()),
                    Err(_) => break,
                }
                prop_assert!(body.line.len() <= LONGEST_LINE);
            }
        }
    }
}
