//! TLS by the name in its hello. It is passed on as it is, or opened where the policy says so.

mod hello;

use std::io;

use tokio::time::timeout;

use super::audit::Protocol;
use super::core::{Passage, Session};
use super::dial::DialError;
use super::inspect;
use super::permit::Subject;
use super::relay::relay;
use super::stream::{Buffered, Client};
use crate::network::{Denial, HostName, RequestHost};

pub(super) use hello::{ClientHello, HelloError};
use hello::{HelloReader, Parsed};

/// Serves one connection that must begin with a hello.
pub(super) async fn serve<C: Client>(mut session: Session<'_, C>, target: Target) -> io::Result<()> {
    let name = match read_name(&mut session, &target).await {
        Ok(name) => name,
        Err(refusal) => {
            let Refusal {
                host,
                denial,
                alert: code,
            } = refusal;
            let subject = Subject {
                protocol: Protocol::Tls,
                host,
                port: Some(target.port),
            };
            session.core.notary.denied(subject, &denial);
            session.client.say_goodbye(&alert(code)).await;
            return Ok(());
        }
    };
    let permit = match session.core.admit_tls(&name, target.port) {
        Ok(Passage::Tunnel(permit)) => permit,
        Ok(Passage::Inspected(inspection)) => {
            return inspect::serve(session, inspection, (name, target.port)).await;
        }
        Err(_) => {
            session.client.say_goodbye(&alert(ACCESS_DENIED)).await;
            return Ok(());
        }
    };
    let _working = session.seat.work();
    match session.core.dial(&permit).await {
        Ok(upstream) => {
            let mut upstream = Buffered::new(upstream);
            relay(&mut session.client, &mut upstream, &permit, session.seat).await
        }
        Err(error) => {
            tracing::debug!(%error, "a TLS connection was not made");
            session.client.say_goodbye(&alert(error.alert())).await;
            Ok(())
        }
    }
}

/// What a TLS connection is for.
pub(super) struct Target {
    /// The port it is meant for.
    pub(super) port: u16,
    /// The name it must be for, where that is known before.
    pub(super) expected: Option<HostName>,
}

impl Target {
    /// One that must be for a host, where that has a name.
    pub(super) fn within(host: RequestHost, port: u16) -> Self {
        let expected = match host {
            RequestHost::Name(name) => Some(name),
            RequestHost::Address(_) => None,
        };
        Self { port, expected }
    }
}

/// Reads a hello and leaves it in the buffer.
pub(super) async fn read_hello<C: Client>(session: &mut Session<'_, C>) -> Result<ClientHello, HelloError> {
    let mut reader = HelloReader::default();
    let reading = async {
        loop {
            match reader.look(&session.client.buffer)? {
                Parsed::Hello(hello) => return Ok(hello),
                Parsed::Partial => {
                    let more = session.client.fill_some().await;
                    more.map_err(|_| HelloError::CutOff)?;
                }
            }
        }
    };
    let read = timeout(session.core.limits.hello, reading).await;
    read.unwrap_or(Err(HelloError::CutOff))
}

/// Why a connection is refused before the policy is asked.
struct Refusal {
    host: Option<String>,
    denial: Denial,
    alert: u8,
}

async fn read_name<C: Client>(session: &mut Session<'_, C>, target: &Target) -> Result<HostName, Refusal> {
    let expected = target.expected.as_ref();
    let hello = read_hello(session).await.map_err(|error| Refusal {
        host: expected.map(ToString::to_string),
        denial: Denial::Invalid(error.reason()),
        alert: error.alert(),
    })?;
    let name = hello.server_name;
    match expected.filter(|expected| **expected != name) {
        None => Ok(name),
        Some(expected) => Err(Refusal {
            host: Some(name.to_string()),
            denial: Denial::Mismatch {
                allowed: expected.to_string(),
                actual: name.to_string(),
            },
            alert: UNRECOGNIZED_NAME,
        }),
    }
}

const DECODE_ERROR: u8 = 50;
const ACCESS_DENIED: u8 = 49;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;

/// A fatal alert, as a record of its own.
fn alert(description: u8) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, description]
}

impl HelloError {
    fn alert(self) -> u8 {
        match self {
            Self::NotTls | Self::Malformed | Self::TooLong | Self::CutOff => DECODE_ERROR,
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
