//! TLS connections by the server name in the client hello. They are tunnelled, or inspected when the policy says so.

mod hello;

use std::io;

use tokio::time::timeout;

use super::audit::AuditProtocol;
use super::core::{GatewaySession, TlsPassage};
use super::dial::DialError;
use super::inspect;
use super::permit::AuditSubject;
use super::relay::relay;
use super::stream::{Buffered, ClientStream};
use crate::network::{Denial, HostName};

pub(super) use hello::HelloError;
use hello::HelloReader;

const ACCESS_DENIED: u8 = 49;
const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;

/// Serves one TLS connection to this port. Its server name must be `expected`, unless that is `None`.
pub(super) async fn serve<C: ClientStream>(
    mut session: GatewaySession<'_, C>,
    expected: Option<HostName>,
    port: u16,
) -> io::Result<()> {
    let (host, denial, code) = match (read_server_name(&mut session).await, expected) {
        (Ok(name), Some(expected)) if name != expected => {
            let denial = Denial::Mismatch {
                allowed: expected.to_string(),
                actual: name.to_string(),
            };
            (Some(name), denial, UNRECOGNIZED_NAME)
        }
        (Ok(name), _) => return serve_name(session, name, port).await,
        (Err(error), expected) => (expected, Denial::Invalid(error.reason()), error.alert()),
    };
    let subject = AuditSubject::new(AuditProtocol::Tls, host.map(|host| host.to_string()), Some(port));
    session.core.audit.denied(subject, &denial);
    session.client.close_with(&alert(code)).await;
    Ok(())
}

async fn serve_name<C: ClientStream>(
    mut session: GatewaySession<'_, C>,
    name: HostName,
    port: u16,
) -> io::Result<()> {
    let permit = match session.core.admit_tls(&name, port) {
        Ok(TlsPassage::Tunnel(permit)) => permit,
        Ok(TlsPassage::Inspected(inspection)) => {
            return inspect::serve(session, inspection, name, port).await;
        }
        Err(_) => {
            session.client.close_with(&alert(ACCESS_DENIED)).await;
            return Ok(());
        }
    };
    let _active = session.slot.activate();
    match session.core.dial(&permit).await {
        Ok(upstream) => {
            let mut upstream = Buffered::new(upstream);
            relay(&mut session.client, &mut upstream, &permit, session.slot).await
        }
        Err(error) => {
            tracing::debug!(%error, "a TLS connection of a sandbox failed");
            session.client.close_with(&alert(error.alert())).await;
            Ok(())
        }
    }
}

/// Reads the server name of a client hello, which stays in the buffer.
pub(super) async fn read_server_name<C: ClientStream>(
    session: &mut GatewaySession<'_, C>,
) -> Result<HostName, HelloError> {
    let mut reader = HelloReader::default();
    let reading = async {
        loop {
            if let Some(name) = reader.read(&session.client.buffer)? {
                return Ok(name);
            }
            let more = session.client.fill_more().await;
            more.map_err(|_| HelloError::Incomplete)?;
        }
    };
    let read = timeout(session.core.setup.limits.hello, reading).await;
    read.unwrap_or(Err(HelloError::Incomplete))
}

/// A fatal alert as a TLS record.
fn alert(description: u8) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, description]
}

impl HelloError {
    fn alert(self) -> u8 {
        match self {
            Self::NotTls | Self::Malformed | Self::TooLong | Self::Incomplete => DECODE_ERROR,
            Self::NoName => UNRECOGNIZED_NAME,
            Self::Encrypted => ACCESS_DENIED,
        }
    }
}

impl DialError {
    fn alert(&self) -> u8 {
        match self {
            Self::Denied(_) => ACCESS_DENIED,
            Self::NoSuchName(_) | Self::Unreachable { .. } | Self::Untrusted { .. } => INTERNAL_ERROR,
        }
    }
}
