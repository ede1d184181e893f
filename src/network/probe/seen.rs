//! What was seen of a probe, as the guest tells it.

use std::fmt;

/// What was seen of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was refused at once.
    Refused,
    /// There was no way, at once.
    Unreachable,
    /// Nothing came back in time.
    Silent,
    /// Somebody answered.
    Answered,
    /// There is no such name.
    NoSuchName,
    /// The name has an address.
    At(String),
    /// HTTP was spoken.
    Http {
        /// The status.
        status: u16,
        /// What was said.
        text: String,
    },
    /// These bytes were answered; none when the connection was ended.
    Heard(Vec<u8>),
    /// The system does not permit it.
    Forbidden,
    /// There is no such thing.
    Absent,
    /// It was done.
    Done,
    /// Anything else.
    Other(String),
}

impl Seen {
    /// Reads a line of the guest's.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        match line.split_once(' ') {
            None => match line {
                "refused" => Self::Refused,
                "unreachable" => Self::Unreachable,
                "silent" => Self::Silent,
                "answered" => Self::Answered,
                "no-such-name" => Self::NoSuchName,
                "forbidden" => Self::Forbidden,
                "absent" => Self::Absent,
                "done" => Self::Done,
                other => Self::Other(other.to_owned()),
            },
            Some(("at", address)) => Self::At(address.to_owned()),
            Some(("received", hex)) => {
                from_hex(hex).map_or_else(|| Self::Other(line.to_owned()), Self::Heard)
            }
            Some(("http", rest)) => {
                let (status, text) = rest.split_once(' ').unwrap_or((rest, ""));
                status.parse().map_or_else(
                    |_| Self::Other(line.to_owned()),
                    |status| Self::Http {
                        status,
                        text: text.to_owned(),
                    },
                )
            }
            Some(_) => Self::Other(line.to_owned()),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Silent => f.write_str("nothing in time"),
            Self::Answered => f.write_str("an answer"),
            Self::NoSuchName => f.write_str("no such name"),
            Self::At(address) => write!(f, "the address {address}"),
            Self::Http { status, text } => write!(f, "HTTP {status} {text:?}"),
            Self::Heard(bytes) => write!(f, "{}", in_words(bytes)),
            Self::Forbidden => f.write_str("not permitted"),
            Self::Absent => f.write_str("not there"),
            Self::Done => f.write_str("done"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Whether this is how the gateway refuses: by an end, an alert of TLS, or a status of HTTP.
pub(super) fn is_refusal(bytes: &[u8]) -> bool {
    const ALERT: u8 = 21;
    let statuses: [&[u8]; 4] = [b"400 ", b"403 ", b"407 ", b"421 "];
    match bytes.strip_prefix(b"HTTP/1.1 ") {
        Some(rest) => statuses.iter().any(|status| rest.starts_with(status)),
        None => bytes.first().is_none_or(|first| *first == ALERT),
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// The first line of an answer, or what it is made of.
fn in_words(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match std::str::from_utf8(line) {
        Ok("") => "the end of the connection".to_owned(),
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ if is_refusal(bytes) => "an alert of TLS".to_owned(),
        _ => format!("an answer of {} bytes", bytes.len()),
    }
}
