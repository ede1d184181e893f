//! Responses of the gateway itself.

use crate::network::{Denial, RequestHost};

/// The denial of a proxy request without the phantom of the run.
pub(in crate::gateway) const WRONG_PHANTOM: &str = "not this run's phantom";

/// A response of the gateway itself, after which the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct HttpAnswer {
    status: &'static str,
    fields: String,
    text: String,
}

impl HttpAnswer {
    /// 403, or 400 for an invalid request, with the reason in a header and in the body.
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
                format!("to inspect it, add \"{host}\" to sandbox.network.inspect\n")
            }
            _ => String::new(),
        };
        let subject = host.map_or(String::new(), |host| format!("{host}: "));
        Self {
            status,
            fields: format!("x-ralph-denied: {}\r\n", field_value(&reason)),
            text: format!("ralph: {subject}{reason}\n{advice}"),
        }
    }

    /// 407: the phantom is missing, or belongs to another run.
    pub(in crate::gateway) fn proxy_authentication_required() -> Self {
        Self {
            status: "407 Proxy Authentication Required",
            fields: format!(
                "proxy-authenticate: Basic realm=\"ralph\"\r\nx-ralph-denied: {WRONG_PHANTOM}\r\n"
            ),
            text: "ralph: the proxy requires the phantom of this run\n".to_owned(),
        }
    }

    /// 502: the host cannot be reached, or sent no valid response.
    pub(in crate::gateway) fn bad_gateway(reason: &str) -> Self {
        Self {
            status: "502 Bad Gateway",
            fields: format!("x-ralph-error: {}\r\n", field_value(reason)),
            text: format!("ralph: {reason}\n"),
        }
    }

    /// 200: the text of the beacon.
    pub(in crate::gateway) fn beacon(text: &str) -> Self {
        Self {
            status: "200 OK",
            fields: String::new(),
            text: text.to_owned(),
        }
    }

    /// The bytes to send.
    pub(in crate::gateway) fn to_bytes(&self) -> Vec<u8> {
        let Self { status, fields, text } = self;
        let length = text.len();
        let own = format!("content-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n");
        format!("HTTP/1.1 {status}\r\n{own}{fields}connection: close\r\n\r\n{text}").into_bytes()
    }
}

/// Replaces characters that are not allowed in a header. A reason may contain text of the sandbox.
fn field_value(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    text.chars().map(|c| if is_plain(c) { c } else { '?' }).collect()
}
