//! Finds the end of a message body.

use hyper::Version;

use super::head::{AMBIGUOUS_LENGTH, HeaderFields, MAX_FIELDS, RequestHead, ResponseHead, is_field_value};
use crate::network::Denial;

/// The longest line of a chunked body that is not data, in bytes.
const MAX_LINE: usize = 8 * 1024;
const TOO_MANY_TRAILERS: Denial = Denial::Invalid("too many trailer fields after an HTTP message");

/// The rest of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MessageBody {
    /// This many bytes.
    Bytes(u64),
    /// Chunks.
    Chunked(ChunkedBody),
    /// All bytes until the connection is closed.
    UntilClose,
}

impl MessageBody {
    /// No body.
    pub(super) const NONE: Self = Self::Bytes(0);

    /// The body of a request. Two length declarations are an error.
    pub(super) fn from_request(head: &RequestHead) -> Result<Self, Denial> {
        let declared = declared(&head.fields, head.version, false)?;
        Ok(declared.unwrap_or(Self::NONE))
    }

    /// The body of a response to a request with this method.
    pub(super) fn from_response(head: &ResponseHead, method: &str) -> Result<Self, Denial> {
        let declared = declared(&head.fields, head.version, true)?;
        if method == "HEAD" || matches!(head.status, 100..200 | 204 | 304) {
            return Ok(Self::NONE);
        }
        Ok(declared.unwrap_or(Self::UntilClose))
    }

    /// Consumes the bytes that belong to the body, and returns their number.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, Denial> {
        match self {
            Self::Bytes(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= length as u64;
                Ok(length)
            }
            Self::Chunked(chunked) => chunked.advance(bytes),
            Self::UntilClose => Ok(bytes.len()),
        }
    }

    /// Whether the body is complete.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Bytes(left) => *left == 0,
            Self::Chunked(chunked) => chunked.part == Part::Over,
            Self::UntilClose => false,
        }
    }
}

/// The body that the header fields declare.
fn declared(
    fields: &HeaderFields,
    version: Version,
    allows_extensions: bool,
) -> Result<Option<MessageBody>, Denial> {
    let encoding = fields.one("transfer-encoding").map_err(|_| AMBIGUOUS_LENGTH)?;
    let length = fields.one("content-length").map_err(|_| AMBIGUOUS_LENGTH)?;
    match (encoding, length) {
        (None, None) => Ok(None),
        (None, Some(length)) => {
            let length = parse_length(length).ok_or(AMBIGUOUS_LENGTH)?;
            Ok(Some(MessageBody::Bytes(length)))
        }
        (Some(encoding), None)
            if version == Version::HTTP_11 && encoding.eq_ignore_ascii_case(b"chunked") =>
        {
            Ok(Some(MessageBody::Chunked(ChunkedBody::new(allows_extensions))))
        }
        _ => Err(AMBIGUOUS_LENGTH),
    }
}

fn parse_length(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The position in a chunked body. Its bytes are forwarded unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkedBody {
    part: Part,
    /// Whether a chunk may have extensions. Programs differ in how they parse them.
    allows_extensions: bool,
    line: Vec<u8>,
    /// The number of trailer fields so far, which is limited like that of header fields.
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Size,
    Data(u64),
    AfterData,
    Trailer,
    Over,
}

impl ChunkedBody {
    fn new(allows_extensions: bool) -> Self {
        Self {
            part: Part::Size,
            allows_extensions,
            line: Vec::new(),
            trailers: 0,
        }
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<usize, Denial> {
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
                    self.check_line()?;
                }
            }
        }
        Ok(at)
    }

    /// Advances to the next part when the line is complete.
    fn check_line(&mut self) -> Result<(), Denial> {
        let (before, last) = match self.line.as_slice() {
            [before @ .., last] => (before, *last),
            [] => return Ok(()),
        };
        if before.last() == Some(&b'\r') && last != b'\n' || self.line.len() > MAX_LINE {
            return Err(AMBIGUOUS_LENGTH);
        }
        if last != b'\n' {
            return Ok(());
        }
        let line = before.strip_suffix(b"\r").ok_or(AMBIGUOUS_LENGTH)?;
        self.part = match self.part {
            Part::Size => match parse_size(line, self.allows_extensions).ok_or(AMBIGUOUS_LENGTH)? {
                0 => Part::Trailer,
                size => Part::Data(size),
            },
            Part::AfterData if line.is_empty() => Part::Size,
            Part::Trailer if line.is_empty() => Part::Over,
            Part::Trailer if is_trailer(line) => {
                self.trailers += 1;
                if self.trailers > MAX_FIELDS {
                    return Err(TOO_MANY_TRAILERS);
                }
                Part::Trailer
            }
            _ => return Err(AMBIGUOUS_LENGTH),
        };
        self.line.clear();
        Ok(())
    }
}

fn parse_size(line: &[u8], allows_extensions: bool) -> Option<u64> {
    let digits = match line.iter().position(|byte| *byte == b';') {
        Some(at) if allows_extensions => trim_blanks_end(&line[..at]),
        Some(_) => return None,
        None => line,
    };
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The bytes without the spaces and tabs at their end. Other white space is not allowed there.
fn trim_blanks_end(mut bytes: &[u8]) -> &[u8] {
    while let [before @ .., b' ' | b'\t'] = bytes {
        bytes = before;
    }
    bytes
}

/// Whether a line is a valid trailer. It must not contain a field that delimits or routes the message.
fn is_trailer(line: &[u8]) -> bool {
    let forbidden = ["transfer-encoding", "content-length", "host", "connection"];
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return false;
    };
    let name = &line[..colon];
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'_';
    !name.is_empty()
        && name.iter().all(is_name)
        && !forbidden
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
        && is_field_value(line)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn request(fields: &str) -> Result<MessageBody, Denial> {
        let text = format!("POST / HTTP/1.1\r\n{fields}\r\n");
        MessageBody::from_request(&RequestHead::parse(&Bytes::from(text))?)
    }

    fn chunked(allows_extensions: bool) -> MessageBody {
        MessageBody::Chunked(ChunkedBody::new(allows_extensions))
    }

    #[rstest]
    #[case::none("", Ok(MessageBody::NONE))]
    #[case::length("Content-Length: 5\r\n", Ok(MessageBody::Bytes(5)))]
    #[case::chunked("Transfer-Encoding: Chunked\r\n", Ok(chunked(false)))]
    #[case::both("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::two_lengths("Content-Length: 5\r\nContent-Length: 6\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::the_same_twice("Content-Length: 5\r\nContent-Length: 5\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::list("Content-Length: 5, 5\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::sign("Content-Length: +5\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::negative("Content-Length: -5\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::hex("Content-Length: 0x5\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::empty("Content-Length:\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::huge("Content-Length: 99999999999999999999\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::identity("Transfer-Encoding: identity\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::two_codings("Transfer-Encoding: gzip, chunked\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::hidden_coding("Transfer-Encoding: xchunked\r\n", Err(AMBIGUOUS_LENGTH))]
    #[case::twice(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        Err(AMBIGUOUS_LENGTH)
    )]
    fn a_request_declares_its_length_once(
        #[case] fields: &str,
        #[case] expected: Result<MessageBody, Denial>,
    ) {
        assert_eq!(request(fields), expected);
    }

    #[rstest]
    #[case::until_close("200 OK", "", "GET", MessageBody::UntilClose)]
    #[case::head("200 OK", "Content-Length: 5\r\n", "HEAD", MessageBody::NONE)]
    #[case::no_content("204 x", "", "GET", MessageBody::NONE)]
    #[case::not_modified("304 x", "Content-Length: 5\r\n", "GET", MessageBody::NONE)]
    #[case::length("200 OK", "Content-Length: 5\r\n", "GET", MessageBody::Bytes(5))]
    #[case::chunked("200 OK", "Transfer-Encoding: chunked\r\n", "GET", chunked(true))]
    fn the_body_of_a_response_depends_on_its_status_and_fields(
        #[case] status: &str,
        #[case] fields: &str,
        #[case] method: &str,
        #[case] expected: MessageBody,
    ) {
        let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
        let head = ResponseHead::parse(&Bytes::from(head)).unwrap();
        assert_eq!(MessageBody::from_response(&head, method), Ok(expected));
    }

    #[rstest]
    #[case::one("5\r\nhello\r\n0\r\n\r\n", false)]
    #[case::two("1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", false)]
    #[case::trailer("0\r\nX-Sum: 1\r\n\r\n", false)]
    #[case::extension("1;a=b\r\na\r\n0\r\n\r\n", true)]
    #[case::blanks_before_an_extension("1 \t;a=b\r\na\r\n0\r\n\r\n", true)]
    fn chunks_are_found_in_pieces_of_any_size(#[case] text: &str, #[case] extensions: bool) {
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
    fn ambiguous_chunks_are_an_error(
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
            chunked(false).advance(text.as_bytes()),
            Err(AMBIGUOUS_LENGTH),
            "{text:?}"
        );
    }

    #[rstest]
    fn only_blanks_are_allowed_before_an_extension(
        #[values("5\x0c;x\r\n", "5\x0b;x\r\n", "5 \x0c ;x\r\n", " 5;x\r\n", " ;x\r\n")] text: &str,
    ) {
        let mut body = chunked(true);
        assert_eq!(body.advance(text.as_bytes()), Err(AMBIGUOUS_LENGTH), "{text:?}");
    }

    #[test]
    fn the_number_of_trailer_fields_is_limited() {
        let body = |count: usize| format!("0\r\n{}\r\n", "a: b\r\n".repeat(count));
        let most = body(MAX_FIELDS);
        assert_eq!(chunked(false).advance(most.as_bytes()), Ok(most.len()));
        let more = body(MAX_FIELDS + 1);
        assert_eq!(chunked(false).advance(more.as_bytes()), Err(TOO_MANY_TRAILERS));
    }

    #[test]
    fn the_length_of_a_line_is_limited() {
        let line = |length: usize| format!("0\r\na:{}\r\n\r\n", "b".repeat(length - "a:\r\n".len()));
        let longest = line(MAX_LINE);
        assert_eq!(chunked(false).advance(longest.as_bytes()), Ok(longest.len()));
        let longer = line(MAX_LINE + 1);
        assert_eq!(chunked(false).advance(longer.as_bytes()), Err(AMBIGUOUS_LENGTH));
    }

    proptest! {
        #[test]
        fn no_chunks_cause_a_panic_or_fill_the_memory(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40),
        ) {
            let mut body = ChunkedBody::new(true);
            for piece in pieces {
                match body.advance(&piece) {
                    Ok(length) => prop_assert!(length <= piece.len()),
                    Err(_) => break,
                }
                prop_assert!(body.line.len() <= MAX_LINE);
            }
        }
    }
}
