//! Responses of the gateway itself.

use crate::network::{Denial, RequestHost};

/// The denial of a proxy request without the phantom of the run.
pub(in crate::gateway) const WRONG_PHANTOM: &str = "not this run's phantom";

/// 403, or 400 for an invalid request, with the reason in a header and in the body.
pub(in crate::gateway) fn denied(denial: &Denial, host: Option<&RequestHost>) -> Vec<u8> {
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
    respond(
        status,
        &format!("x-ralph-denied: {}\r\n", field_value(&reason)),
        &format!("ralph: {subject}{reason}\n{advice}"),
    )
}

/// 407: the phantom is missing, or belongs to another run.
pub(in crate::gateway) fn proxy_authentication_required() -> Vec<u8> {
    respond(
        "407 Proxy Authentication Required",
        &format!("proxy-authenticate: Basic realm=\"ralph\"\r\nx-ralph-denied: {WRONG_PHANTOM}\r\n"),
        "ralph: the proxy requires the phantom of this run\n",
    )
}

/// 502: the host cannot be reached, or sent no valid response.
pub(in crate::gateway) fn bad_gateway(reason: &str) -> Vec<u8> {
    respond(
        "502 Bad Gateway",
        &format!("x-ralph-error: {}\r\n", field_value(reason)),
        &format!("ralph: {reason}\n"),
    )
}

/// 200: the text of the beacon.
pub(in crate::gateway) fn beacon(text: &str) -> Vec<u8> {
    respond("200 OK", "", text)
}

/// A response after which the connection is closed.
fn respond(status: &str, fields: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    let own = format!("content-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n");
    format!("HTTP/1.1 {status}\r\n{own}{fields}connection: close\r\n\r\n{text}").into_bytes()
}

/// Replaces characters that are not allowed in a header. A reason may contain text of the sandbox.
fn field_value(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    text.chars().map(|c| if is_plain(c) { c } else { '?' }).collect()
}
