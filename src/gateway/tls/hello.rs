//! Parses the server name of a TLS client hello.

use super::{ACCESS_DENIED, DECODE_ERROR, UNRECOGNIZED_NAME};
use crate::network::HostName;

/// The longest client hello, in bytes and over any number of records.
const MAX_HELLO: usize = 16 * 1024;
/// The same with record headers of five bytes each. A record may contain a single byte.
const MAX_WITH_HEADERS: usize = MAX_HELLO * 6;

const RECORD_HANDSHAKE: u8 = 22;
const RECORD_HEADER: usize = 5;
const MAX_RECORD: usize = 1 << 14;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const MESSAGE_HEADER: usize = 4;
const EXTENSION_SERVER_NAME: u16 = 0;
/// Encrypted client hello (ECH) and its draft, which hide the server name.
const EXTENSIONS_ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// Why a client hello is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct HelloError {
    /// The reason for the audit.
    pub(in crate::gateway) reason: &'static str,
    /// The TLS alert for the client.
    pub(super) alert: u8,
}

impl HelloError {
    const NOT_TLS: Self = Self::new("not TLS", DECODE_ERROR);
    /// It is malformed, or has a duplicate extension.
    const MALFORMED: Self = Self::new("malformed TLS client hello", DECODE_ERROR);
    const TOO_LONG: Self = Self::new("TLS client hello too long", DECODE_ERROR);
    pub(super) const INCOMPLETE: Self = Self::new(
        "TLS client hello incomplete or not received in time",
        DECODE_ERROR,
    );
    const NO_NAME: Self = Self::new("TLS client hello without a server name (SNI)", UNRECOGNIZED_NAME);
    /// It has an encrypted server name, or a GREASE extension that looks the same.
    const ENCRYPTED: Self = Self::new(
        "TLS client hello with an encrypted server name (ECH)",
        ACCESS_DENIED,
    );

    const fn new(reason: &'static str, alert: u8) -> Self {
        Self { reason, alert }
    }
}

/// Reassembles a client hello from records.
#[derive(Debug, Default)]
pub(in crate::gateway) struct HelloReader {
    message: Vec<u8>,
    /// The number of input bytes that are in the message.
    used: usize,
}

impl HelloReader {
    /// The server name; `None` when more bytes are needed. `bytes` are all that were received so far.
    pub(in crate::gateway) fn read(&mut self, bytes: &[u8]) -> Result<Option<HostName>, HelloError> {
        loop {
            if let Some(body) = complete_message(&self.message)? {
                return parse_hello(body).map(Some);
            }
            let rest = bytes.get(self.used..).unwrap_or_default();
            match next_record(rest)? {
                Some((fragment, after)) => {
                    self.message.extend_from_slice(fragment);
                    self.used = bytes.len() - after.len();
                }
                None if bytes.len() > MAX_WITH_HEADERS => return Err(HelloError::TOO_LONG),
                None => return Ok(None),
            }
        }
    }
}

/// The content of a record, and the bytes after it.
type RecordAndRest<'a> = (&'a [u8], &'a [u8]);

/// The content of the next record and the bytes after it; `None` when it is incomplete.
fn next_record(bytes: &[u8]) -> Result<Option<RecordAndRest<'_>>, HelloError> {
    // A partial header is checked, so that other protocols are refused without waiting.
    if bytes.first().is_some_and(|kind| *kind != RECORD_HANDSHAKE)
        || bytes.get(1).is_some_and(|major| *major != 3)
    {
        return Err(HelloError::NOT_TLS);
    }
    let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if length == 0 || length > MAX_RECORD {
        return Err(HelloError::MALFORMED);
    }
    Ok(rest.split_at_checked(length))
}

/// The body of the message; `None` when it is incomplete.
fn complete_message(message: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    if message.first().is_some_and(|kind| *kind != MESSAGE_CLIENT_HELLO) {
        return Err(HelloError::MALFORMED);
    }
    let Some((header, body)) = message.split_first_chunk::<MESSAGE_HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
    if length > MAX_HELLO - MESSAGE_HEADER {
        return Err(HelloError::TOO_LONG);
    }
    match body.len().cmp(&length) {
        std::cmp::Ordering::Less => Ok(None),
        std::cmp::Ordering::Equal => Ok(Some(body)),
        // A second message in the same record.
        std::cmp::Ordering::Greater => Err(HelloError::MALFORMED),
    }
}

fn parse_hello(body: &[u8]) -> Result<HostName, HelloError> {
    let mut reader = FieldReader(body);
    let malformed = HelloError::MALFORMED;
    let version_and_random = 2 + 32;
    reader.take(version_and_random).ok_or(malformed)?;
    reader.block8().ok_or(malformed)?; // session
    reader.block16().ok_or(malformed)?; // cipher suites
    reader.block8().ok_or(malformed)?; // compression
    if reader.0.is_empty() {
        return Err(HelloError::NO_NAME);
    }
    let mut extensions = FieldReader(reader.block16().ok_or(malformed)?);
    if !reader.0.is_empty() {
        return Err(malformed);
    }
    let mut server_name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16().ok_or(malformed)?;
        let content = extensions.block16().ok_or(malformed)?;
        if EXTENSIONS_ENCRYPTED.contains(&kind) {
            return Err(HelloError::ENCRYPTED);
        }
        if kind == EXTENSION_SERVER_NAME {
            let name = parse_server_name(content)?;
            if server_name.replace(name).is_some() {
                return Err(malformed);
            }
        }
    }
    server_name.ok_or(HelloError::NO_NAME)
}

/// Parses a list that must contain exactly one host name.
fn parse_server_name(content: &[u8]) -> Result<HostName, HelloError> {
    const HOST_NAME: u8 = 0;
    let malformed = HelloError::MALFORMED;
    let mut outer = FieldReader(content);
    let mut list = FieldReader(outer.block16().ok_or(malformed)?);
    let kind = list.take(1).ok_or(malformed)?;
    let name = list.block16().ok_or(malformed)?;
    if kind != [HOST_NAME] || !list.0.is_empty() || !outer.0.is_empty() {
        return Err(malformed);
    }
    let text = std::str::from_utf8(name).map_err(|_| malformed)?;
    // A trailing dot is not allowed, and servers differ in how they treat it.
    let name = HostName::parse(text).ok().filter(|_| !text.ends_with('.'));
    name.ok_or(HelloError::NO_NAME)
}

/// Reads fields from the front of some bytes.
struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        let &[high, low] = self.take(2)?.first_chunk()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn block8(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(*self.take(1)?.first()?);
        self.take(length)
    }

    fn block16(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        self.take(length)
    }
}

#[cfg(test)]
mod tests;
