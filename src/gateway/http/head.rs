//! Parses the head of an HTTP/1 message strictly: what two programs could parse differently is an error.

use bytes::Bytes;
use hyper::Version;
use tokio::io::AsyncRead;

use crate::gateway::stream::Buffered;
use crate::network::Denial;

/// The most header fields.
pub(super) const MAX_FIELDS: usize = 200;

/// Why a head is refused.
const HEAD_TOO_LONG: Denial = Denial::Invalid("HTTP head too long");
pub(super) const HEAD_INCOMPLETE: Denial = Denial::Invalid("HTTP head incomplete or not received in time");
const BARE_LINE_END: Denial = Denial::Invalid("HTTP line without CRLF at its end");
pub(super) const BAD_START_LINE: Denial = Denial::Invalid("malformed HTTP/1 request line");
const BAD_VERSION: Denial = Denial::Invalid("unsupported HTTP version");
const BAD_FIELD: Denial = Denial::Invalid("malformed HTTP header field");
const REPEATED_FIELD: Denial = Denial::Invalid("duplicate HTTP header field");
pub(super) const AMBIGUOUS_LENGTH: Denial = Denial::Invalid("ambiguous length of the HTTP message");
pub(super) const AMBIGUOUS_HOST: Denial = Denial::Invalid("missing or ambiguous host of the HTTP request");
/// The Connection field lists a field that must be forwarded.
pub(super) const DROPPED_FIELD: Denial =
    Denial::Invalid("the Connection header lists a field that must be forwarded");

/// Reads a head with its empty line, of at most this many bytes.
pub(super) async fn read<R: AsyncRead + Unpin>(
    from: &mut Buffered<R>,
    max_bytes: usize,
) -> Result<Bytes, Denial> {
    let mut seen = 0;
    loop {
        if let Some(end) = end_of_head(&from.buffer, seen)? {
            // All of it may have come at once.
            if end > max_bytes {
                return Err(HEAD_TOO_LONG);
            }
            return Ok(from.buffer.split_to(end).freeze());
        }
        seen = from.buffer.len();
        if seen > max_bytes {
            return Err(HEAD_TOO_LONG);
        }
        from.fill_more().await.map_err(|_| HEAD_INCOMPLETE)?;
    }
}

/// The length of the head with its empty line; `None` when it is incomplete. The first `seen` bytes were checked before.
///
/// A line that does not end in CRLF is an error as soon as it is received.
fn end_of_head(bytes: &[u8], seen: usize) -> Result<Option<usize>, Denial> {
    for (at, byte) in bytes.iter().enumerate().skip(seen.saturating_sub(1)) {
        match byte {
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Err(BARE_LINE_END),
            b'\n' if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" => return Ok(Some(at + 1)),
            b'\n' if at == 1 => return Err(BAD_START_LINE),
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Err(BARE_LINE_END);
            }
            _ => {}
        }
    }
    Ok(None)
}

fn parse_version(text: &[u8]) -> Result<Version, Denial> {
    match text {
        b"HTTP/1.1" => Ok(Version::HTTP_11),
        b"HTTP/1.0" => Ok(Version::HTTP_10),
        _ => Err(BAD_VERSION),
    }
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct RequestHead {
    pub(in crate::gateway) method: String,
    pub(in crate::gateway) target: String,
    pub(super) version: Version,
    pub(in crate::gateway) fields: HeaderFields,
}

impl RequestHead {
    /// Parses a complete head with its empty line.
    pub(super) fn parse(head: &Bytes) -> Result<Self, Denial> {
        let (line, fields) = split(head)?;
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(BAD_START_LINE);
        };
        let version = parse_version(version)?;
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(BAD_START_LINE);
        }
        if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
            return Err(BAD_START_LINE);
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
    pub(super) version: Version,
    pub(super) fields: HeaderFields,
}

impl ResponseHead {
    /// Parses a complete head with its empty line.
    pub(super) fn parse(head: &Bytes) -> Result<Self, Denial> {
        let (line, fields) = split(head)?;
        let (version, rest) = line.split_at_checked(8).ok_or(BAD_START_LINE)?;
        let code = rest.get(1..4).filter(|_| rest[0] == b' ').ok_or(BAD_START_LINE)?;
        let digits = code.iter().all(u8::is_ascii_digit);
        let ended = matches!(rest.get(4), None | Some(b' '));
        let status: u16 = String::from_utf8_lossy(code)
            .parse()
            .map_err(|_| BAD_START_LINE)?;
        if !digits || !ended || !(100..600).contains(&status) || !is_field_value(rest) {
            return Err(BAD_START_LINE);
        }
        Ok(Self {
            status,
            status_text: line.slice(9..),
            version: parse_version(version)?,
            fields,
        })
    }
}

/// Header fields in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct HeaderFields(Vec<(Bytes, Bytes)>);

impl HeaderFields {
    /// The names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Writes all fields but those with one of these names.
    pub(super) fn write_except(&self, names: &[&[u8]], head: &mut Vec<u8>) {
        for (name, value) in self.iter() {
            if !names.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                head.extend([name, b": ", value, b"\r\n"].concat());
            }
        }
    }

    /// Replaces values.
    pub(super) fn replace(
        &mut self,
        new_value: impl Fn(&[u8]) -> Result<Option<Bytes>, Denial>,
    ) -> Result<(), Denial> {
        for (_, value) in &mut self.0 {
            if let Some(new) = new_value(value)? {
                *value = new;
            }
        }
        Ok(())
    }

    /// All values of a field.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let own = move |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
        self.iter().filter(own).map(|(_, value)| value)
    }

    /// The value of a field that must not occur twice.
    pub(in crate::gateway) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a [u8]>, Denial> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(REPEATED_FIELD),
        }
    }

    /// Whether a list field contains this word.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.words(name)
            .any(|own| own.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Whether the connection stays open after a message of this version with these fields.
    pub(super) fn keep_open(&self, version: Version) -> bool {
        version == Version::HTTP_11 && !self.lists("connection", "close")
    }

    /// The words of a list field.
    pub(super) fn words<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let words = self.all(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
    }
}

/// The first line of a complete head, and its fields.
fn split(head: &Bytes) -> Result<(Bytes, HeaderFields), Denial> {
    let end = end_of_head(head, 0)?.filter(|end| *end == head.len());
    let lines = &head[..end.ok_or(BAD_START_LINE)? - b"\r\n\r\n".len()];
    // All lines end in CRLF.
    let mut lines = lines
        .split(|byte| *byte == b'\r')
        .map(|line| line.strip_prefix(b"\n").unwrap_or(line));
    let line = head.slice_ref(lines.next().unwrap_or_default());
    let fields: Result<Vec<_>, _> = lines.map(|line| field(head, line)).collect();
    let fields = fields?;
    if fields.len() > MAX_FIELDS {
        return Err(HEAD_TOO_LONG);
    }
    Ok((line, HeaderFields(fields)))
}

/// Parses `name: value`. A line that starts with a space is an error, because some programs append it to the line before.
fn field(head: &Bytes, line: &[u8]) -> Result<(Bytes, Bytes), Denial> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(BAD_FIELD)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !is_field_value(value) {
        return Err(BAD_FIELD);
    }
    Ok((head.slice_ref(name), head.slice_ref(value.trim_ascii())))
}

/// Whether the bytes contain no control characters but tabs.
pub(super) fn is_field_value(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn request(head: &str) -> Result<RequestHead, Denial> {
        RequestHead::parse(&Bytes::from(head.to_owned()))
    }

    #[test]
    fn a_request_is_parsed() {
        let head = request("GET /a?b HTTP/1.1\r\nHost: a.example\r\nX-Y:  z, w \r\nx-y: v\r\n\r\n").unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("GET", "/a?b"));
        assert_eq!(head.version, Version::HTTP_11);
        assert_eq!(head.fields.one("host"), Ok(Some(b"a.example".as_slice())));
        assert_eq!(head.fields.one("x-y"), Err(REPEATED_FIELD));
        assert_eq!(head.fields.words("X-Y").collect::<Vec<_>>(), [b"z", b"w", b"v"]);
    }

    #[rstest]
    #[case::words("GET / HTTP/1.1 \r\n\r\n", BAD_START_LINE)]
    #[case::two_spaces("GET  / HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::tab("GET\t/ HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::no_method(" / HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::odd_method("G@T / HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::control_in_the_target("GET /\x01 HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::wide_target("GET /é HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::http2("PRI * HTTP/2.0\r\n\r\n", BAD_VERSION)]
    #[case::lower_case("GET / http/1.1\r\n\r\n", BAD_VERSION)]
    #[case::http09("GET /\r\n\r\n", BAD_START_LINE)]
    #[case::bare_lf("GET / HTTP/1.1\nHost: a\r\n\r\n", BARE_LINE_END)]
    #[case::bare_cr("GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", BARE_LINE_END)]
    #[case::empty_first_line("\r\nGET / HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::folded("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", BAD_FIELD)]
    #[case::folded_with_a_colon("GET / HTTP/1.1\r\nA: b\r\n\tC: d\r\n\r\n", BAD_FIELD)]
    #[case::space_before_the_colon("GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n", BAD_FIELD)]
    #[case::no_colon("GET / HTTP/1.1\r\nabc\r\n\r\n", BAD_FIELD)]
    #[case::no_name("GET / HTTP/1.1\r\n: abc\r\n\r\n", BAD_FIELD)]
    #[case::zero("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", BAD_FIELD)]
    #[case::delete("GET / HTTP/1.1\r\nA: b\x7fc\r\n\r\n", BAD_FIELD)]
    #[case::more("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", BAD_START_LINE)]
    #[case::cut_off("GET / HTTP/1.1\r\nA: b\r\n", BAD_START_LINE)]
    fn an_ambiguous_head_is_an_error(#[case] head: &str, #[case] expected: Denial) {
        assert_eq!(request(head), Err(expected));
    }

    #[test]
    fn the_number_of_fields_is_limited() {
        let head = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert!(request(&head(MAX_FIELDS)).is_ok());
        assert_eq!(request(&head(MAX_FIELDS + 1)), Err(HEAD_TOO_LONG));
    }

    #[rstest]
    #[case("HTTP/1.1 200 OK\r\n\r\n", Ok(200))]
    #[case("HTTP/1.1 204\r\n\r\n", Ok(204))]
    #[case("HTTP/1.0 404 Not Found\r\n\r\n", Ok(404))]
    #[case("HTTP/1.1 99 x\r\n\r\n", Err(BAD_START_LINE))]
    #[case("HTTP/1.1 +20 x\r\n\r\n", Err(BAD_START_LINE))]
    #[case("HTTP/1.1 2000\r\n\r\n", Err(BAD_START_LINE))]
    #[case("HTTP/2.0 200 x\r\n\r\n", Err(BAD_VERSION))]
    #[case("200 OK\r\n\r\n", Err(BAD_START_LINE))]
    fn the_status_of_a_response_is_parsed(#[case] head: &str, #[case] expected: Result<u16, Denial>) {
        let head = ResponseHead::parse(&Bytes::from(head.to_owned()));
        assert_eq!(head.map(|head| head.status), expected);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = end_of_head(&bytes, 0);
            let _ = RequestHead::parse(&Bytes::from(bytes.clone()));
            let _ = ResponseHead::parse(&Bytes::from(bytes));
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
