//! What the gateway says itself.

use crate::network::{Denial, RequestHost};

/// An answer of the gateway's own, after which the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Answer {
    status: &'static str,
    fields: String,
    text: String,
}

impl Answer {
    /// 403, or 400 when it was not clear what is wanted; with the reason where tools show it.
    pub(in crate::gateway) fn denied(denial: &Denial, host: Option<&RequestHost>) -> Self {
        let reason = denial.to_string();
        let status = match denial {
            Denial::Invalid(_) => "400 Bad Request",
            _ => "403 Forbidden",
        };
        let advice = match (denial, host) {
            (Denial::NotListed, Some(host)) => {
                format!("to allow it, add \"{host}\" to sandbox.network.allowed\n")
            }
            (Denial::Request { wanted, .. }, _) => {
                format!("to allow it, add \"{wanted}\" to sandbox.network.allowed\n")
            }
            (Denial::NotInspected(_), Some(host)) => {
                format!("to let it be seen, add \"{host}\" to sandbox.network.inspect\n")
            }
            _ => String::new(),
        };
        let subject = host.map_or(String::new(), |host| format!("{host}: "));
        Self {
            status,
            fields: format!("x-ralph-denied: {}\r\n", in_a_field(&reason)),
            text: format!("ralph: {subject}{reason}\n{advice}"),
        }
    }

    /// 407: the phantom is missing or another run's.
    pub(in crate::gateway) fn unauthorized() -> Self {
        let fields =
            "proxy-authenticate: Basic realm=\"ralph\"\r\nx-ralph-denied: not this run's phantom\r\n";
        Self {
            status: "407 Proxy Authentication Required",
            fields: fields.to_owned(),
            text: "ralph: the proxy needs the phantom of its own run\n".to_owned(),
        }
    }

    /// 502: the host could not be reached, or gave no answer that can be passed on.
    pub(in crate::gateway) fn unreachable(reason: &str) -> Self {
        Self {
            status: "502 Bad Gateway",
            fields: format!("x-ralph-error: {}\r\n", in_a_field(reason)),
            text: format!("ralph: {reason}\n"),
        }
    }

    /// 200: what the gateway says of itself.
    pub(in crate::gateway) fn beacon(says: &str) -> Self {
        Self {
            status: "200 OK",
            fields: String::new(),
            text: says.to_owned(),
        }
    }

    /// As it is sent.
    pub(in crate::gateway) fn to_bytes(&self) -> Vec<u8> {
        let Self { status, fields, text } = self;
        let length = text.len();
        let own = format!("content-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n");
        format!("HTTP/1.1 {status}\r\n{own}{fields}connection: close\r\n\r\n{text}").into_bytes()
    }
}

/// What a sandbox said may stand in a reason; it must not make fields of its own.
fn in_a_field(text: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() || c == ' ';
    text.chars().map(|c| if plain(c) { c } else { '?' }).collect()
}
