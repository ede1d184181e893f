//! The first message of TLS, read as far as the name it asks for.

use crate::network::HostName;

/// The longest hello that is read, over however many records and packets.
const LONGEST: usize = 16 * 1024;
/// Each record adds five bytes, and a record may hold a single one.
const LONGEST_WITH_RECORDS: usize = LONGEST * 6;

const RECORD_HANDSHAKE: u8 = 22;
const RECORD_HEADER: usize = 5;
const RECORD_LONGEST: usize = 1 << 14;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const MESSAGE_HEADER: usize = 4;
const EXTENSION_SERVER_NAME: u16 = 0;
/// Encrypted client hello, and the draft before it: the name that is meant is hidden.
const EXTENSIONS_ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// What a hello says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct ClientHello {
    /// The name it asks for.
    pub(in crate::gateway) server_name: HostName,
}

/// How far a hello has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Parsed {
    /// There must be more.
    Partial,
    /// It is whole.
    Hello(ClientHello),
}

/// Why a hello is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum HelloError {
    /// It is no TLS.
    NotTls,
    /// It is TLS and broken, or says something twice.
    Malformed,
    /// It is too long.
    TooLong,
    /// It did not come in time, or not to its end.
    CutOff,
    /// It asks for no name.
    NoName,
    /// It hides the name it means. A hello that only pretends to looks the same.
    Encrypted,
}

impl HelloError {
    /// In words.
    pub(in crate::gateway) fn reason(self) -> &'static str {
        match self {
            Self::NotTls => "no TLS",
            Self::Malformed => "a TLS hello that cannot be read",
            Self::TooLong => "a TLS hello that is too long",
            Self::CutOff => "a TLS hello that did not come in time",
            Self::NoName => "a TLS hello without a name (SNI)",
            Self::Encrypted => "a TLS hello with a hidden name (ECH)",
        }
    }
}

/// Puts a hello together, record by record.
#[derive(Debug, Default)]
pub(in crate::gateway) struct HelloReader {
    message: Vec<u8>,
    /// How much of the bytes went into the message.
    used: usize,
}

impl HelloReader {
    /// Looks at all that has come so far; what was seen the last time is not looked at again.
    pub(in crate::gateway) fn look(&mut self, bytes: &[u8]) -> Result<Parsed, HelloError> {
        loop {
            if let Some(body) = whole_message(&self.message)? {
                return parse_hello(body).map(Parsed::Hello);
            }
            let rest = bytes.get(self.used..).unwrap_or_default();
            match next_record(rest)? {
                Some((fragment, after)) => {
                    self.message.extend_from_slice(fragment);
                    self.used = bytes.len() - after.len();
                }
                None if bytes.len() > LONGEST_WITH_RECORDS => return Err(HelloError::TooLong),
                None => return Ok(Parsed::Partial),
            }
        }
    }
}

/// The content of a record, and what comes after it.
type Record<'a> = (&'a [u8], &'a [u8]);

/// The next record; `None` when it is not whole yet.
fn next_record(bytes: &[u8]) -> Result<Option<Record<'_>>, HelloError> {
    // What is there of the header is checked at once: what is no TLS need not be waited for.
    if bytes.first().is_some_and(|kind| *kind != RECORD_HANDSHAKE)
        || bytes.get(1).is_some_and(|major| *major != 3)
    {
        return Err(HelloError::NotTls);
    }
    let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if length == 0 || length > RECORD_LONGEST {
        return Err(HelloError::Malformed);
    }
    Ok(rest.split_at_checked(length))
}

/// The body of the message; `None` when it is not whole yet.
fn whole_message(message: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    if message.first().is_some_and(|kind| *kind != MESSAGE_CLIENT_HELLO) {
        return Err(HelloError::Malformed);
    }
    let Some((header, body)) = message.split_first_chunk::<MESSAGE_HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
    if length > LONGEST - MESSAGE_HEADER {
        return Err(HelloError::TooLong);
    }
    match body.len().cmp(&length) {
        std::cmp::Ordering::Less => Ok(None),
        std::cmp::Ordering::Equal => Ok(Some(body)),
        // A second message within the records of the first.
        std::cmp::Ordering::Greater => Err(HelloError::Malformed),
    }
}

fn parse_hello(body: &[u8]) -> Result<ClientHello, HelloError> {
    let mut reader = Reader(body);
    let malformed = HelloError::Malformed;
    let version_and_random = 2 + 32;
    reader.take(version_and_random).ok_or(malformed)?;
    reader.block8().ok_or(malformed)?; // session
    reader.block16().ok_or(malformed)?; // cipher suites
    reader.block8().ok_or(malformed)?; // compression
    if reader.0.is_empty() {
        return Err(HelloError::NoName);
    }
    let mut extensions = Reader(reader.block16().ok_or(malformed)?);
    if !reader.0.is_empty() {
        return Err(malformed);
    }
    let mut server_name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number16().ok_or(malformed)?;
        let content = extensions.block16().ok_or(malformed)?;
        if EXTENSIONS_ENCRYPTED.contains(&kind) {
            return Err(HelloError::Encrypted);
        }
        if kind == EXTENSION_SERVER_NAME {
            let name = parse_server_name(content)?;
            if server_name.replace(name).is_some() {
                return Err(malformed);
            }
        }
    }
    let server_name = server_name.ok_or(HelloError::NoName)?;
    Ok(ClientHello { server_name })
}

/// A list that must hold one name of a host and nothing else.
fn parse_server_name(content: &[u8]) -> Result<HostName, HelloError> {
    const HOST_NAME: u8 = 0;
    let malformed = HelloError::Malformed;
    let mut outer = Reader(content);
    let mut list = Reader(outer.block16().ok_or(malformed)?);
    let kind = list.take(1).ok_or(malformed)?;
    let name = list.block16().ok_or(malformed)?;
    if kind != [HOST_NAME] || !list.0.is_empty() || !outer.0.is_empty() {
        return Err(malformed);
    }
    let text = std::str::from_utf8(name).map_err(|_| malformed)?;
    // By the book there is no dot at the end, and servers differ in what they make of one.
    let name = HostName::parse(text).ok().filter(|_| !text.ends_with('.'));
    name.ok_or(HelloError::NoName)
}

/// Takes blocks off the front of some bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        let &[high, low] = self.take(2)?.first_chunk()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn block8(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(*self.take(1)?.first()?);
        self.take(length)
    }

    fn block16(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.number16()?);
        self.take(length)
    }
}

#[cfg(test)]
mod tests;
