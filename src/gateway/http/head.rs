//! The head of an HTTP/1 message, read strictly: what two programs could read in two ways is refused.

use std::ops::Range;

use bytes::Bytes;

/// The most fields a head may have.
const MOST_FIELDS: usize = 200;

/// Where the head ends, counted from the start and with its empty line; `None` when it is not whole yet.
///
/// A line that ends in anything but CRLF is refused as soon as it is there. The first `seen` bytes were looked at before.
pub(super) fn end_of_head(bytes: &[u8], seen: usize) -> Result<Option<usize>, HeadError> {
    for (at, byte) in bytes.iter().enumerate().skip(seen.saturating_sub(1)) {
        match byte {
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Err(HeadError::LineEnd),
            b'\n' if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" => return Ok(Some(at + 1)),
            b'\n' if at == 1 => return Err(HeadError::StartLine),
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => return Err(HeadError::LineEnd),
            _ => {}
        }
    }
    Ok(None)
}

/// Which version of HTTP a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Version {
    fn parse(text: &[u8]) -> Result<Self, HeadError> {
        match text {
            b"HTTP/1.1" => Ok(Self::Http11),
            b"HTTP/1.0" => Ok(Self::Http10),
            _ => Err(HeadError::Version),
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
    pub(super) version: Version,
    pub(in crate::gateway) fields: Fields,
}

impl RequestHead {
    /// Reads a whole head, with its empty line.
    pub(super) fn parse(head: Bytes) -> Result<Self, HeadError> {
        let (line, fields) = split(head)?;
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(HeadError::StartLine);
        };
        let version = Version::parse(version)?;
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(HeadError::StartLine);
        }
        if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
            return Err(HeadError::StartLine);
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
    /// The code and its words, as they were sent.
    pub(super) status_text: Bytes,
    pub(super) version: Version,
    pub(super) fields: Fields,
}

impl ResponseHead {
    /// Reads a whole head, with its empty line.
    pub(super) fn parse(head: Bytes) -> Result<Self, HeadError> {
        let (line, fields) = split(head)?;
        let (version, rest) = line.split_at_checked(8).ok_or(HeadError::StartLine)?;
        let code = rest
            .get(1..4)
            .filter(|_| rest[0] == b' ')
            .ok_or(HeadError::StartLine)?;
        let digits = code.iter().all(u8::is_ascii_digit);
        let ended = matches!(rest.get(4), None | Some(b' '));
        let status: u16 = String::from_utf8_lossy(code)
            .parse()
            .map_err(|_| HeadError::StartLine)?;
        if !digits || !ended || !(100..600).contains(&status) {
            return Err(HeadError::StartLine);
        }
        Ok(Self {
            status,
            status_text: line.slice(9..),
            version: Version::parse(version)?,
            fields,
        })
    }
}

/// The fields of a head, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Fields {
    head: Bytes,
    places: Vec<(Range<usize>, Range<usize>)>,
}

impl Fields {
    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let places = self.places.iter();
        places.map(|(name, value)| (&self.head[name.clone()], &self.head[value.clone()]))
    }

    /// The values of a field, however often it stands there.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let own = move |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
        self.iter().filter(own).map(|(_, value)| value)
    }

    /// The value of a field that may stand there once.
    pub(in crate::gateway) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a [u8]>, HeadError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(HeadError::Repeated),
        }
    }

    /// Whether a field that holds a list has this word in it.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.words(name)
            .any(|own| own.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The words of a field that holds a list.
    pub(super) fn words<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let words = self.all(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
    }
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum HeadError {
    /// It is longer than is read.
    TooLong,
    /// It did not come in time, or not to its end.
    CutOff,
    /// A line does not end in CRLF.
    LineEnd,
    /// The first line is none.
    StartLine,
    /// The version is another one.
    Version,
    /// A field is none.
    Field,
    /// A field stands there twice that must not.
    Repeated,
    /// It is not clear how long the message is.
    Length,
    /// It is not clear which host is meant.
    Host,
    /// A field is to be dropped that must not be.
    Connection,
}

impl HeadError {
    /// In words.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "an HTTP head that is too long",
            Self::CutOff => "an HTTP head that did not come in time",
            Self::LineEnd => "an HTTP line that ends in something else than CRLF",
            Self::StartLine => "a first line that is none of HTTP/1",
            Self::Version => "a version of HTTP that is not spoken here",
            Self::Field => "an HTTP field that cannot be read",
            Self::Repeated => "an HTTP field that stands there twice",
            Self::Length => "an HTTP message whose length is not clear",
            Self::Host => "an HTTP request that does not say one host",
            Self::Connection => "a Connection field that names what must stay",
        }
    }
}

fn split(head: Bytes) -> Result<(Bytes, Fields), HeadError> {
    let end = end_of_head(&head, 0)?.filter(|end| *end == head.len());
    let end = end.ok_or(HeadError::StartLine)?;
    let mut at = line_end(&head, 0);
    let line = head.slice(..at);
    at += 2;
    let mut places = Vec::new();
    while at < end - 2 {
        let line = at..line_end(&head, at);
        at = line.end + 2;
        places.push(field(&head, line)?);
        if places.len() > MOST_FIELDS {
            return Err(HeadError::TooLong);
        }
    }
    Ok((line, Fields { head, places }))
}

fn line_end(head: &[u8], from: usize) -> usize {
    let length = head[from..].iter().position(|byte| *byte == b'\r');
    length.map_or(head.len(), |length| from + length)
}

/// `name: value`. A line that begins with a space would go on with the one before, to some.
fn field(head: &[u8], line: Range<usize>) -> Result<(Range<usize>, Range<usize>), HeadError> {
    let text = &head[line.clone()];
    let colon = text
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(HeadError::Field)?;
    let (name, value) = (&text[..colon], &text[colon + 1..]);
    let is_value = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !value.iter().all(is_value) {
        return Err(HeadError::Field);
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

    fn request(head: &str) -> Result<RequestHead, HeadError> {
        RequestHead::parse(Bytes::from(head.to_owned()))
    }

    #[test]
    fn a_request_is_read() {
        let head = request("GET /a?b HTTP/1.1\r\nHost: a.example\r\nX-Y:  z, w \r\nx-y: v\r\n\r\n").unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("GET", "/a?b"));
        assert_eq!(head.version, Version::Http11);
        assert_eq!(head.fields.one("host"), Ok(Some(b"a.example".as_slice())));
        assert_eq!(head.fields.one("x-y"), Err(HeadError::Repeated));
        assert_eq!(head.fields.words("X-Y").collect::<Vec<_>>(), [b"z", b"w", b"v"]);
    }

    #[rstest]
    #[case::words("GET / HTTP/1.1 \r\n\r\n", HeadError::StartLine)]
    #[case::two_spaces("GET  / HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::tab("GET\t/ HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::no_method(" / HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::odd_method("G@T / HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::control_in_the_target("GET /\x01 HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::wide_target("GET /é HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::http2("PRI * HTTP/2.0\r\n\r\n", HeadError::Version)]
    #[case::lower_case("GET / http/1.1\r\n\r\n", HeadError::Version)]
    #[case::http09("GET /\r\n\r\n", HeadError::StartLine)]
    #[case::bare_lf("GET / HTTP/1.1\nHost: a\r\n\r\n", HeadError::LineEnd)]
    #[case::bare_cr("GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", HeadError::LineEnd)]
    #[case::empty_first_line("\r\nGET / HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::folded("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", HeadError::Field)]
    #[case::folded_with_a_colon("GET / HTTP/1.1\r\nA: b\r\n\tC: d\r\n\r\n", HeadError::Field)]
    #[case::space_before_the_colon("GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n", HeadError::Field)]
    #[case::no_colon("GET / HTTP/1.1\r\nabc\r\n\r\n", HeadError::Field)]
    #[case::no_name("GET / HTTP/1.1\r\n: abc\r\n\r\n", HeadError::Field)]
    #[case::zero("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", HeadError::Field)]
    #[case::delete("GET / HTTP/1.1\r\nA: b\x7fc\r\n\r\n", HeadError::Field)]
    #[case::more("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", HeadError::StartLine)]
    #[case::cut_off("GET / HTTP/1.1\r\nA: b\r\n", HeadError::StartLine)]
    fn what_can_be_read_in_two_ways_is_refused(#[case] head: &str, #[case] expected: HeadError) {
        assert_eq!(request(head), Err(expected));
    }

    #[test]
    fn a_head_has_only_so_many_fields() {
        let head = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert!(request(&head(MOST_FIELDS)).is_ok());
        assert_eq!(request(&head(MOST_FIELDS + 1)), Err(HeadError::TooLong));
    }

    #[rstest]
    #[case("HTTP/1.1 200 OK\r\n\r\n", Ok(200))]
    #[case("HTTP/1.1 204\r\n\r\n", Ok(204))]
    #[case("HTTP/1.0 404 Not Found\r\n\r\n", Ok(404))]
    #[case("HTTP/1.1 99 x\r\n\r\n", Err(HeadError::StartLine))]
    #[case("HTTP/1.1 +20 x\r\n\r\n", Err(HeadError::StartLine))]
    #[case("HTTP/1.1 2000\r\n\r\n", Err(HeadError::StartLine))]
    #[case("HTTP/2.0 200 x\r\n\r\n", Err(HeadError::Version))]
    #[case("200 OK\r\n\r\n", Err(HeadError::StartLine))]
    fn a_response_is_read_by_its_status(#[case] head: &str, #[case] expected: Result<u16, HeadError>) {
        let head = ResponseHead::parse(Bytes::from(head.to_owned()));
        assert_eq!(head.map(|head| head.status), expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = end_of_head(&bytes, 0);
            let _ = RequestHead::parse(Bytes::from(bytes.clone()));
            let _ = ResponseHead::parse(Bytes::from(bytes));
        }

        #[test]
        fn what_is_taken_has_lines_that_all_programs_see(text in "GET / HTTP/1.1\r\n([ -~\r\n\t\0]{0,30}\r\n){0,4}\r\n") {
            if let Ok(head) = request(&text) {
                let lines = text.trim_end_matches("\r\n").split("\r\n").skip(1).count();
                prop_assert_eq!(head.fields.iter().count(), lines);
                prop_assert!(!text.replace("\r\n", "").contains(['\r', '\n', '\0']));
            }
        }
    }
}
