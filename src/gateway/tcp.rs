//! Any other connection, by the host that its destination stands for.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::audit::Protocol;
use super::core::Session;
use super::http::{self, Scope};
use super::permit::Permit;
use super::relay::{self, relay};
use super::stream::{Buffered, Client};
use super::tls;
use crate::network::{Denial, PolicyRequest, PolicyVerdict, RequestHost};

/// Serves one connection to a host and port.
///
/// Where it turns out to be TLS or HTTP, it must be for that same host, as on the ports of the web.
pub(super) async fn serve<C: Client>(
    mut session: Session<'_, C>,
    host: RequestHost,
    port: u16,
) -> io::Result<()> {
    let request = PolicyRequest::opaque(host.clone(), port);
    let inspected = session.core.inspects(&host, port);
    match session.core.judge(&request) {
        PolicyVerdict::Denied(Denial::NotInspected(_)) => return serve_seen(session, host, port).await,
        PolicyVerdict::Denied(Denial::Injected(_)) if inspected => {
            return serve_seen(session, host, port).await;
        }
        _ => {}
    }
    let Ok(permit) = session.core.admit(Protocol::Tcp, request) else {
        session.client.stream.reset_on_close();
        return Ok(());
    };
    let working = session.seat.work();
    let Ok(upstream) = session.core.dial(&permit).await else {
        session.client.stream.reset_on_close();
        return Ok(());
    };
    let mut upstream = Buffered::new(upstream);
    match first_words(&mut session, &mut upstream, &permit).await? {
        Speech::Http => {
            // Judged request by request from here on; nothing was sent on this connection yet.
            drop((working, upstream, permit));
            return http::serve(session, Scope::Tunnel(host, port)).await;
        }
        Speech::Tls if inspected => {
            drop((working, upstream, permit));
            return tls::serve(session, tls::Target::within(host, port)).await;
        }
        Speech::Tls => {
            if let Err(denial) = check_name(&mut session, &host, port).await {
                permit.refuse(denial);
                session.client.stream.reset_on_close();
                return Ok(());
            }
        }
        Speech::Other => {}
    }
    relay(&mut session.client, &mut upstream, &permit, session.seat).await
}

/// Serves one connection of which each request has to be seen: in TLS that is opened, or without TLS.
async fn serve_seen<C: Client>(mut session: Session<'_, C>, host: RequestHost, port: u16) -> io::Result<()> {
    match recognise_all(&mut session).await? {
        Speech::Tls => tls::serve(session, tls::Target::within(host, port)).await,
        Speech::Http | Speech::Other => http::serve(session, Scope::Tunnel(host, port)).await,
    }
}

/// What a client speaks, by its first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    Tls,
    Http,
    Other,
}

/// Waits for the client's first words, and passes on what the host says before.
async fn first_words<C: Client>(
    session: &mut Session<'_, C>,
    upstream: &mut Buffered<TcpStream>,
    permit: &Permit,
) -> io::Result<Speech> {
    loop {
        if !session.client.buffer.is_empty() {
            return recognise_all(session).await;
        }
        tokio::select! {
            heard = session.client.fill() => {
                if heard? == 0 {
                    return Ok(Speech::Other);
                }
            }
            said = upstream.fill() => {
                if said? == 0 {
                    return Ok(Speech::Other);
                }
                let words = upstream.take();
                session.client.stream.write_all(&words).await?;
                relay::count(&permit.traffic.received, words.len());
            }
            () = permit.revoked() => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        session.seat.touch();
    }
}

/// Reads until it is clear what the client speaks. What is not clear in time is no HTTP and no TLS.
async fn recognise_all<C: Client>(session: &mut Session<'_, C>) -> io::Result<Speech> {
    let reading = async {
        loop {
            if let Some(speech) = recognise(&session.client.buffer) {
                return Ok(speech);
            }
            session.client.fill_some().await?;
        }
    };
    let recognised = timeout(session.core.limits.hello, reading).await;
    recognised.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The longest first line that is waited for to see whether it is one of HTTP.
const LONGEST_LINE: usize = 8 * 1024;
const METHODS: [&[u8]; 8] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"TRACE ",
];

/// What the first words are; `None` when there must be more.
fn recognise(words: &[u8]) -> Option<Speech> {
    match words {
        [] | [22] => return None,
        [22, 3, ..] => return Some(Speech::Tls),
        _ => {}
    }
    let may_be = |method: &[u8]| words.starts_with(method) || method.starts_with(words);
    if !METHODS.iter().any(|method| may_be(method)) {
        return Some(Speech::Other);
    }
    let end = words.iter().position(|byte| *byte == b'\n');
    match end.map(|end| &words[..end]) {
        Some(line) if line.windows(6).any(|word| word == b"HTTP/1") => Some(Speech::Http),
        Some(_) => Some(Speech::Other),
        None if words.len() > LONGEST_LINE => Some(Speech::Http),
        None => None,
    }
}

/// A hello must be for the host. One to a bare address is judged by the name that it says: what may not be reached by its
/// name may not be reached by its address.
async fn check_name<C: Client>(
    session: &mut Session<'_, C>,
    host: &RequestHost,
    port: u16,
) -> Result<(), Denial> {
    let hello = tls::read_hello(session).await;
    let meant = hello
        .map_err(|error| Denial::Invalid(error.reason()))?
        .server_name;
    match host {
        RequestHost::Name(expected) if meant == *expected => Ok(()),
        RequestHost::Name(expected) => Err(Denial::Mismatch {
            allowed: expected.to_string(),
            actual: meant.to_string(),
        }),
        RequestHost::Address(_) => match session
            .core
            .judge(&PolicyRequest::opaque(RequestHost::Name(meant), port))
        {
            PolicyVerdict::Allowed(_) => Ok(()),
            PolicyVerdict::Denied(denial) => Err(denial),
        },
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
    #[case(b"\x16\x03\x01", Some(Speech::Tls))]
    #[case(b"G", None)]
    #[case(b"GET / HTTP/1.1", None)]
    #[case(b"GET / HTTP/1.1\r\n", Some(Speech::Http))]
    #[case(b"POST / HTTP/1.0\n", Some(Speech::Http))]
    #[case(b"GET key\r\n", Some(Speech::Other))]
    #[case(b"SSH-2.0-x\r\n", Some(Speech::Other))]
    #[case(b"EHLO a\r\n", Some(Speech::Other))]
    #[case(b"\0\0\0\x08", Some(Speech::Other))]
    fn a_client_is_known_by_its_first_words(#[case] words: &[u8], #[case] expected: Option<Speech>) {
        assert_eq!(recognise(words), expected);
    }

    proptest! {
        #[test]
        fn whatever_is_said_is_recognised_before_it_takes_much_room(
            begin in prop::sample::select(METHODS.to_vec()),
            piece in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            let said: Vec<u8> = begin.iter().chain(piece.iter().cycle()).copied().take(LONGEST_LINE + 1).collect();
            prop_assert!(recognise(&said).is_some());
            let said: Vec<u8> = piece.iter().cycle().copied().take(LONGEST_LINE + 1).collect();
            prop_assert!(recognise(&said).is_some());
        }
    }
}
