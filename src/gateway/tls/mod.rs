//! TLS connections by the server name in the client hello. They are tunnelled, or inspected when the policy says so.

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzz;
mod hello;

use std::io;

use tokio::time::timeout;

use super::audit::AuditProtocol;
use super::dial::DialError;
use super::inspect;
use super::relay::relay;
use super::shared::ServedConnection;
use super::stream::Buffered;
use crate::network::{Denial, HostName, PolicyRequest, RequestHost};

pub(super) use hello::HelloError;
use hello::HelloReader;

const ACCESS_DENIED: u8 = 49;
const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;

/// Serves one TLS connection to this port. Its server name must be `expected`, unless that is `None`.
pub(super) async fn serve(
    mut connection: ServedConnection<'_>,
    expected: Option<HostName>,
    port: u16,
) -> io::Result<()> {
    let (host, denial, code) = match (read_server_name(&mut connection).await, expected) {
        (Ok(name), Some(expected)) if name != expected => {
            let denial = Denial::Mismatch {
                allowed: expected.to_string(),
                actual: name.to_string(),
            };
            (Some(name), denial, UNRECOGNIZED_NAME)
        }
        (Ok(name), _) => return serve_name(connection, name, port).await,
        (Err(error), expected) => (expected, Denial::Invalid(error.reason), error.alert),
    };
    let host = host.map(RequestHost::Name);
    connection
        .core
        .record_denial(AuditProtocol::Tls, host.as_ref(), Some(port), &denial);
    connection.client.close_with(&alert(code)).await;
    Ok(())
}

async fn serve_name(mut connection: ServedConnection<'_>, name: HostName, port: u16) -> io::Result<()> {
    let request = PolicyRequest::opaque(RequestHost::Name(name.clone()), port);
    let permit = match connection.core.inspection_for(&request) {
        Ok(Some(inspection)) => return inspect::serve(connection, inspection, name, port).await,
        Ok(None) => connection.core.admit(AuditProtocol::Tls, request),
        Err(denial) => Err(denial),
    };
    let Ok(permit) = permit else {
        connection.client.close_with(&alert(ACCESS_DENIED)).await;
        return Ok(());
    };
    let _active = connection.slot.activate();
    match connection.core.dial(&permit).await {
        Ok(upstream) => {
            let mut upstream = Buffered::new(upstream);
            relay(&mut connection.client, &mut upstream, &permit, connection.slot).await
        }
        Err(error) => {
            tracing::debug!(%error, "a TLS connection of a sandbox failed");
            let code = match error {
                DialError::Denied(_) => ACCESS_DENIED,
                DialError::Failed(_) => INTERNAL_ERROR,
            };
            connection.client.close_with(&alert(code)).await;
            Ok(())
        }
    }
}

/// Reads the server name of a client hello, which stays in the buffer.
pub(super) async fn read_server_name(connection: &mut ServedConnection<'_>) -> Result<HostName, HelloError> {
    let mut reader = HelloReader::default();
    let reading = async {
        loop {
            if let Some(name) = reader.read(&connection.client.buffer)? {
                return Ok(name);
            }
            let more = connection.client.fill_more().await;
            more.map_err(|_| HelloError::INCOMPLETE)?;
        }
    };
    let read = timeout(connection.core.setup.limits.receive_timeout, reading).await;
    read.unwrap_or(Err(HelloError::INCOMPLETE))
}

/// A fatal alert as a TLS record.
fn alert(description: u8) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, description]
}
