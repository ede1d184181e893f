//! The fuzz body of the TLS client hello. A rustls server is the second opinion about the server name.

use rustls::server::Acceptor;

use super::hello::HelloReader;

/// The first bytes of a TLS connection.
pub(in crate::gateway) fn hello(bytes: &[u8]) {
    let whole = HelloReader::default().read(bytes);
    // What was decided about the first bytes holds for all of them.
    let mut reader = HelloReader::default();
    for end in (0..bytes.len()).step_by(bytes.len() / 7 + 1).chain([bytes.len()]) {
        let decided = reader.read(&bytes[..end]);
        if decided != Ok(None) || end == bytes.len() {
            assert_eq!(decided, whole, "after {end} bytes");
            break;
        }
    }
    if let Some(seen) = seen_by_a_server(bytes) {
        // What is complete for a server is complete for us. We refuse more, also each hello without a name.
        assert_ne!(whole, Ok(None), "a server sees {seen:?}");
        if let Ok(Some(name)) = whole {
            assert_eq!(Some(name.as_str()), seen.server_name.as_deref());
        }
    }
}

/// What a server reads in a hello that it accepts.
#[derive(Debug)]
pub(super) struct AcceptedHello {
    /// In lower case. A hello need not have one.
    pub(super) server_name: Option<String>,
}

/// Reads a hello as rustls does; `None` if it refuses the hello or needs more bytes.
pub(super) fn seen_by_a_server(mut bytes: &[u8]) -> Option<AcceptedHello> {
    let mut acceptor = Acceptor::default();
    while acceptor.read_tls(&mut bytes).ok()? > 0 {
        if let Some(accepted) = acceptor.accept().ok()? {
            let hello = accepted.client_hello();
            return Some(AcceptedHello {
                server_name: hello.server_name().map(str::to_ascii_lowercase),
            });
        }
    }
    None
}
