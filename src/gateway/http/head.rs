//! Parses the head of an HTTP/1 message strictly: what two programs could parse differently is an error.

use std::ops::Range;

use bytes::Bytes;
use tokio::io::AsyncRead;

use crate::gateway::stream::Buffered;

/// The most header fields.
const MAX_FIELDS: usize = 200;

/// Reads a head with its empty line, of at most about this many bytes.
pub(super) async fn read<R: AsyncRead + Unpin>(
    from: &mut Buffered<R>,
    max_bytes: usize,
) -> Result<Bytes, HttpHeadError> {
    let mut seen = 0;
    loop {
        if let Some(end) = end_of_head(&from.buffer, seen)? {
            return Ok(from.buffer.split_to(end).freeze());
        }
        seen = from.buffer.len();
        if seen > max_bytes {
            return Err(HttpHeadError::TooLong);
        }
        from.fill_more().await.map_err(|_| HttpHeadError::Incomplete)?;
    }
}

/// The length of the head with its empty line; `None` when it is incomplete. The first `seen` bytes were checked before.
///
/// A line that does not end in CRLF is an error as soon as it is received.
fn end_of_head(bytes: &[u8], seen: usize) -> Result<Option<usize>, HttpHeadError> {
    for (at, byte) in bytes.iter().enumerate().skip(seen.saturating_sub(1)) {
        match byte {
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Err(HttpHeadError::LineEnd),
            b'\n' if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" => return Ok(Some(at + 1)),
            b'\n' if at == 1 => return Err(HttpHeadError::StartLine),
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Err(HttpHeadError::LineEnd);
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The HTTP version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum HttpVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl HttpVersion {
    fn parse(text: &[u8]) -> Result<Self, HttpHeadError> {
        match text {
            b"HTTP/1.1" => Ok(Self::Http11),
            b"HTTP/1.0" => Ok(Self::Http10),
            _ => Err(HttpHeadError::Version),
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct RequestHead {
    pub(in crate::gateway) method: String,
    pub(in crate::gateway) target: String,
    pub(super) version: HttpVersion,
    pub(in crate::gateway) fields: HeaderFields,
}

impl RequestHead {
    /// Parses a complete head with its empty line.
    pub(super) fn parse(head: Bytes) -> Result<Self, HttpHeadError> {
        let (line, fields) = split(head)?;
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(HttpHeadError::StartLine);
        };
        let version = HttpVersion::parse(version)?;
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(HttpHeadError::StartLine);
        }
        if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
            return Err(HttpHeadError::StartLine);
        }
        Ok(Self {
            method: String::from_utf8_lossy(method).into_owned(),
            target: String::from_utf8_lossy(target).into_owned(),
            version,
            fields,
        })
    }
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    /// The status code and reason phrase.
    pub(super) status_text: Bytes,
    pub(super) version: HttpVersion,
    pub(super) fields: HeaderFields,
}

impl ResponseHead {
    /// Parses a complete head with its empty line.
    pub(super) fn parse(head: Bytes) -> Result<Self, HttpHeadError> {
        let (line, fields) = split(head)?;
        let (version, rest) = line.split_at_checked(8).ok_or(HttpHeadError::StartLine)?;
        let code = rest
            .get(1..4)
            .filter(|_| rest[0] == b' ')
            .ok_or(HttpHeadError::StartLine)?;
        let digits = code.iter().all(u8::is_ascii_digit);
        let ended = matches!(rest.get(4), None | Some(b' '));
        let status: u16 = String::from_utf8_lossy(code)
            .parse()
            .map_err(|_| HttpHeadError::StartLine)?;
        if !digits || !ended || !(100..600).contains(&status) {
            return Err(HttpHeadError::StartLine);
        }
        Ok(Self {
            status,
            status_text: line.slice(9..),
            version: HttpVersion::parse(version)?,
            fields,
        })
    }
}

/// Header fields in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct HeaderFields {
    head: Bytes,
    ranges: Vec<(Range<usize>, Range<usize>)>,
}

impl HeaderFields {
    /// The names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let ranges = self.ranges.iter();
        ranges.map(|(name, value)| (&self.head[name.clone()], &self.head[value.clone()]))
    }

    /// All values of a field.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let own = move |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
        self.iter().filter(own).map(|(_, value)| value)
    }

    /// The value of a field that must not occur twice.
    pub(in crate::gateway) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a [u8]>, HttpHeadError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(HttpHeadError::Repeated),
        }
    }

    /// Whether a list field contains this word.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.words(name)
            .any(|own| own.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The words of a list field.
    pub(super) fn words<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let words = self.all(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
    }
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum HttpHeadError {
    /// It is too long.
    TooLong,
    /// It did not arrive completely in time.
    Incomplete,
    /// A line does not end in CRLF.
    LineEnd,
    /// The first line is malformed.
    StartLine,
    /// The version is not supported.
    Version,
    /// A header field is malformed.
    Field,
    /// A header field occurs twice.
    Repeated,
    /// The length of the message is ambiguous.
    Length,
    /// The host is missing or ambiguous.
    Host,
    /// The Connection field lists a field that must be forwarded.
    Connection,
}

impl HttpHeadError {
    /// The reason for the audit and the client.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "HTTP head too long",
            Self::Incomplete => "HTTP head incomplete or not received in time",
            Self::LineEnd => "HTTP line without CRLF at its end",
            Self::StartLine => "malformed HTTP/1 request line",
            Self::Version => "unsupported HTTP version",
            Self::Field => "malformed HTTP header field",
            Self::Repeated => "duplicate HTTP header field",
            Self::Length => "ambiguous length of the HTTP message",
            Self::Host => "missing or ambiguous host of the HTTP request",
            Self::Connection => "the Connection header lists a field that must be forwarded",
        }
    }
}

fn split(head: Bytes) -> Result<(Bytes, HeaderFields), HttpHeadError> {
    let end = end_of_head(&head, 0)?.filter(|end| *end == head.len());
    let end = end.ok_or(HttpHeadError::StartLine)?;
    let mut at = line_end(&head, 0);
    let line = head.slice(..at);
    at += 2;
    let mut ranges = Vec::new();
    while at < end - 2 {
        let line = at..line_end(&head, at);
        at = line.end + 2;
        ranges.push(field(&head, line)?);
        if ranges.len() > MAX_FIELDS {
            return Err(HttpHeadError::TooLong);
        }
    }
    Ok((line, HeaderFields { head, ranges }))
}

fn line_end(head: &[u8], from: usize) -> usize {
    let length = head[from..].iter().position(|byte| *byte == b'\r');
    length.map_or(head.len(), |length| from + length)
}

/// Parses `name: value`. A line that starts with a space is an error, because some programs append it to the line before.
fn field(head: &[u8], line: Range<usize>) -> Result<(Range<usize>, Range<usize>), HttpHeadError> {
    let text = &head[line.clone()];
    let colon = text
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(HttpHeadError::Field)?;
    let (name, value) = (&text[..colon], &text[colon + 1..]);
    let is_value = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !value.iter().all(is_value) {
        return Err(HttpHeadError::Field);
    }
    let start = line.start + colon + 1 + (value.len() - value.trim_ascii_start().len());
    let end = start + value.trim_ascii().len();
    Ok((line.start..line.start + colon, start..end))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn request(head: &str) -> Result<RequestHead, HttpHeadError> {
        RequestHead::parse(Bytes::from(head.to_owned()))
    }

    #[test]
    fn a_request_is_parsed() {
        let head = request("GET /a?b HTTP/1.1\r\nHost: a.example\r\nX-Y:  z, w \r\nx-y: v\r\n\r\n").unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("GET", "/a?b"));
        assert_eq!(head.version, HttpVersion::Http11);
        assert_eq!(head.fields.one("host"), Ok(Some(b"a.example".as_slice())));
        assert_eq!(head.fields.one("x-y"), Err(HttpHeadError::Repeated));
        assert_eq!(head.fields.words("X-Y").collect::<Vec<_>>(), [b"z", b"w", b"v"]);
    }

    #[rstest]
    #[case::words("GET / HTTP/1.1 \r\n\r\n", HttpHeadError::StartLine)]
    #[case::two_spaces("GET  / HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::tab("GET\t/ HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::no_method(" / HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::odd_method("G@T / HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::control_in_the_target("GET /\x01 HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::wide_target("GET /é HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::http2("PRI * HTTP/2.0\r\n\r\n", HttpHeadError::Version)]
    #[case::lower_case("GET / http/1.1\r\n\r\n", HttpHeadError::Version)]
    #[case::http09("GET /\r\n\r\n", HttpHeadError::StartLine)]
    #[case::bare_lf("GET / HTTP/1.1\nHost: a\r\n\r\n", HttpHeadError::LineEnd)]
    #[case::bare_cr("GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", HttpHeadError::LineEnd)]
    #[case::empty_first_line("\r\nGET / HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::folded("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", HttpHeadError::Field)]
    #[case::folded_with_a_colon("GET / HTTP/1.1\r\nA: b\r\n\tC: d\r\n\r\n", HttpHeadError::Field)]
    #[case::space_before_the_colon("GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n", HttpHeadError::Field)]
    #[case::no_colon("GET / HTTP/1.1\r\nabc\r\n\r\n", HttpHeadError::Field)]
    #[case::no_name("GET / HTTP/1.1\r\n: abc\r\n\r\n", HttpHeadError::Field)]
    #[case::zero("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", HttpHeadError::Field)]
    #[case::delete("GET / HTTP/1.1\r\nA: b\x7fc\r\n\r\n", HttpHeadError::Field)]
    #[case::more("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", HttpHeadError::StartLine)]
    #[case::cut_off("GET / HTTP/1.1\r\nA: b\r\n", HttpHeadError::StartLine)]
    fn an_ambiguous_head_is_an_error(#[case] head: &str, #[case] expected: HttpHeadError) {
        assert_eq!(request(head), Err(expected));
    }

    #[test]
    fn the_number_of_fields_is_limited() {
        let head = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert!(request(&head(MAX_FIELDS)).is_ok());
        assert_eq!(request(&head(MAX_FIELDS + 1)), Err(HttpHeadError::TooLong));
    }

    #[rstest]
    #[case("HTTP/1.1 200 OK\r\n\r\n", Ok(200))]
    #[case("HTTP/1.1 204\r\n\r\n", Ok(204))]
    #[case("HTTP/1.0 404 Not Found\r\n\r\n", Ok(404))]
    #[case("HTTP/1.1 99 x\r\n\r\n", Err(HttpHeadError::StartLine))]
    #[case("HTTP/1.1 +20 x\r\n\r\n", Err(HttpHeadError::StartLine))]
    #[case("HTTP/1.1 2000\r\n\r\n", Err(HttpHeadError::StartLine))]
    #[case("HTTP/2.0 200 x\r\n\r\n", Err(HttpHeadError::Version))]
    #[case("200 OK\r\n\r\n", Err(HttpHeadError::StartLine))]
    fn the_status_of_a_response_is_parsed(#[case] head: &str, #[case] expected: Result<u16, HttpHeadError>) {
        let head = ResponseHead::parse(Bytes::from(head.to_owned()));
        assert_eq!(head.map(|head| head.status), expected);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = end_of_head(&bytes, 0);
            let _ = RequestHead::parse(Bytes::from(bytes.clone()));
            let _ = ResponseHead::parse(Bytes::from(bytes));
        }

        #[test]
        fn all_programs_see_the_same_lines_in_a_valid_head(text in "GET / HTTP/1.1\r\n([ -~\r\n\t\0]{0,30}\r\n){0,4}\r\n") {
            if let Ok(head) = request(&text) {
                let lines = text.trim_end_matches("\r\n").split("\r\n").skip(1).count();
                prop_assert_eq!(head.fields.iter().count(), lines);
                prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']));
            }
        }
    }
}
