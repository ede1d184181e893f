//! Connections on other ports, judged by the name behind their synthetic address.

use std::io;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::audit::AuditProtocol;
use super::http::{self, RequestScope};
use super::permit::Permit;
use super::relay::relay;
use super::shared::ServedConnection;
use super::stream::Buffered;
use super::tls;
use crate::network::{Denial, PolicyRequest, RequestHost};

/// Serves one connection to a host and port. TLS and HTTP must be for that same host, as on their usual ports.
pub(super) async fn serve(
    mut connection: ServedConnection<'_>,
    host: RequestHost,
    port: u16,
) -> io::Result<()> {
    let request = PolicyRequest::opaque(host.clone(), port);
    let inspected = connection.core.inspects(&host, port);
    match connection.core.judge(&request) {
        Err(Denial::NotInspected(_)) => return serve_requests(connection, host, port).await,
        Err(Denial::Injected(_)) if inspected => return serve_requests(connection, host, port).await,
        _ => {}
    }
    let Ok(permit) = connection.core.admit(AuditProtocol::Tcp, request) else {
        reset_on_close(&connection);
        return Ok(());
    };
    let active = connection.slot.activate();
    let mut upstream = match connection.core.dial(&permit).await {
        Ok(upstream) => Buffered::new(upstream),
        Err(error) => {
            tracing::debug!(%error, "a TCP connection of a sandbox failed");
            reset_on_close(&connection);
            return Ok(());
        }
    };
    match detect_first(&mut connection, &mut upstream, &permit).await? {
        Detected::Http => {
            // From here on each request is judged. Nothing was sent over this upstream connection yet.
            drop((active, upstream, permit));
            return http::serve(connection, RequestScope::Tunnel { host, port }).await;
        }
        Detected::Tls if inspected => {
            drop((active, upstream, permit));
            return tls::serve(connection, host.name().cloned(), port).await;
        }
        Detected::Tls => {
            if let Err(denial) = check_server_name(&mut connection, &host, port).await {
                permit.revoke(denial);
                reset_on_close(&connection);
                return Ok(());
            }
        }
        Detected::Other => {}
    }
    relay(&mut connection.client, &mut upstream, &permit, connection.slot).await
}

/// Makes the connection of the client end with a reset when it is dropped.
fn reset_on_close(connection: &ServedConnection<'_>) {
    connection.client.stream.reset_on_close();
}

/// Serves a connection whose requests are judged one by one: in inspected TLS, or without TLS.
async fn serve_requests(
    mut connection: ServedConnection<'_>,
    host: RequestHost,
    port: u16,
) -> io::Result<()> {
    match detect(&mut connection).await? {
        Detected::Tls => tls::serve(connection, host.name().cloned(), port).await,
        Detected::Http | Detected::Other => {
            http::serve(connection, RequestScope::Tunnel { host, port }).await
        }
    }
}

/// The protocol of a client, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detected {
    Tls,
    Http,
    Other,
}

/// Waits for the first bytes of the client, and passes on what the host sends before.
async fn detect_first(
    connection: &mut ServedConnection<'_>,
    upstream: &mut Buffered<TcpStream>,
    permit: &Permit,
) -> io::Result<Detected> {
    loop {
        if !connection.client.buffer.is_empty() {
            return detect(connection).await;
        }
        tokio::select! {
            read = connection.client.fill() => {
                if read? == 0 {
                    return Ok(Detected::Other);
                }
            }
            read = upstream.fill() => {
                if read? == 0 {
                    return Ok(Detected::Other);
                }
                let bytes = upstream.take();
                let received = permit.received(connection.slot);
                received.send(&bytes, &mut connection.client.stream).await?;
            }
            () = permit.until_revoked() => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        connection.slot.touch();
    }
}

/// Reads until the protocol of the client is known.
async fn detect(connection: &mut ServedConnection<'_>) -> io::Result<Detected> {
    let reading = async {
        loop {
            if let Some(detected) = detect_protocol(&connection.client.buffer) {
                return Ok(detected);
            }
            connection.client.fill_more().await?;
        }
    };
    timeout(connection.core.setup.limits.receive_timeout, reading).await?
}

/// The longest first line that is read to see whether it is HTTP, in bytes.
const MAX_LINE: usize = 8 * 1024;

/// The protocol of these first bytes; `None` when more are needed.
///
/// Everything that a lenient server could take for a request is HTTP, with any method, any version and empty lines before
/// it, so that it is parsed strictly and its host is checked. HTTP/2 without TLS is such a line too, and is refused there.
fn detect_protocol(bytes: &[u8]) -> Option<Detected> {
    match bytes {
        [] | [22] => return None,
        [22, 3, ..] => return Some(Detected::Tls),
        _ => {}
    }
    let is_space = |byte: &u8| b"\r\n\t ".contains(byte);
    let start = bytes
        .iter()
        .position(|byte| !is_space(byte))
        .unwrap_or(bytes.len());
    let rest = &bytes[start..];
    let end = rest.iter().position(|byte| *byte == b'\n');
    let line = &rest[..end.unwrap_or(rest.len())];
    let is_binary = |byte: &u8| byte.is_ascii_control() && !is_space(byte);
    if line.windows(5).any(|word| word.eq_ignore_ascii_case(b"HTTP/")) {
        return Some(Detected::Http);
    }
    if line.first().is_some_and(|first| !first.is_ascii_graphic()) || line.iter().any(is_binary) {
        return Some(Detected::Other);
    }
    match end {
        Some(_) => Some(Detected::Other),
        None if bytes.len() > MAX_LINE => Some(Detected::Http),
        None => None,
    }
}

/// Checks that a client hello is for the host. For a bare address the policy judges the server name: a host that may not
/// be reached by its name may not be reached by its address either.
async fn check_server_name(
    connection: &mut ServedConnection<'_>,
    host: &RequestHost,
    port: u16,
) -> Result<(), Denial> {
    let server_name = tls::read_server_name(connection)
        .await
        .map_err(|error| Denial::Invalid(error.reason))?;
    match host {
        RequestHost::Name(expected) if server_name == *expected => Ok(()),
        RequestHost::Name(expected) => Err(Denial::Mismatch {
            allowed: expected.to_string(),
            actual: server_name.to_string(),
        }),
        RequestHost::Address(_) => {
            let request = PolicyRequest::opaque(RequestHost::Name(server_name), port);
            connection.core.judge(&request).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(b"", None)]
    #[case(b"\x16", None)]
    #[case(b"\x16\x03\x01", Some(Detected::Tls))]
    #[case(b"G", None)]
    #[case(b"GET / HTTP/1.1", Some(Detected::Http))]
    #[case(b"GET /\x01 HTTP/1.1\r\n", Some(Detected::Http))]
    #[case(b"GET / HTTP/1.1\r\n", Some(Detected::Http))]
    #[case(b"POST / HTTP/1.0\n", Some(Detected::Http))]
    #[case(b"\r\n\r\n", None)]
    #[case(b"\r\nGET / HTTP/1.1\r\n", Some(Detected::Http))]
    #[case(b"\n\n GET / HTTP/1.1\r\n", Some(Detected::Http))]
    #[case(b"PROPFIND / HTTP/1.1\r\n", Some(Detected::Http))]
    #[case(b"get / http/1.1\r\n", Some(Detected::Http))]
    #[case(b"G\"T\t/ HTTP/1.1\r\n", Some(Detected::Http))]
    #[case(b"CONNECT a.example:443 HTTP/1.1\r\n", Some(Detected::Http))]
    #[case(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(Detected::Http))]
    #[case(b"PRI * HT", None)]
    #[case(b"AMQP\0\0\x09\x01", Some(Detected::Other))]
    #[case(b"*1\r\n$4\r\nPING\r\n", Some(Detected::Other))]
    #[case(b"0032git-upload-pack /x\0host=a.example\0", Some(Detected::Other))]
    #[case(b"0\x0c\x02\x01\x01", Some(Detected::Other))]
    #[case(b"GET key\r\n", Some(Detected::Other))]
    #[case(b"SSH-2.0-x\r\n", Some(Detected::Other))]
    #[case(b"EHLO a\r\n", Some(Detected::Other))]
    #[case(b"\0\0\0\x08", Some(Detected::Other))]
    fn a_protocol_is_detected_by_its_first_bytes(#[case] bytes: &[u8], #[case] expected: Option<Detected>) {
        assert_eq!(detect_protocol(bytes), expected);
    }

    proptest! {
        #[test]
        fn every_protocol_is_detected_within_the_longest_line(
            begin in prop::sample::select(vec!["GET ", "\r\n", "PRI * HTTP/"]),
            piece in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            let bytes: Vec<u8> = begin.bytes().chain(piece.iter().cycle().copied()).take(MAX_LINE + 1).collect();
            prop_assert!(detect_protocol(&bytes).is_some());
            let bytes: Vec<u8> = piece.iter().cycle().copied().take(MAX_LINE + 1).collect();
            prop_assert!(detect_protocol(&bytes).is_some());
        }
    }
}
