//! HTTP/1 by the host that each request names. Every request of a connection is judged anew.

mod answer;
mod ask;
mod body;
mod exchange;
mod head;

use std::io;
use std::sync::Arc;

use tokio::time::timeout;

use super::audit::Protocol;
use super::core::Session;
use super::inspect::Inspection;
use super::permit::Subject;
use super::stream::Client;
use crate::network::{Denial, HostName, RequestHost};
use exchange::{Ended, Upstream, exchange};
use head::{HeadError, RequestHead, end_of_head};

pub(super) use answer::Answer;
pub(super) use ask::{Ask, Onward};

/// Where the requests of a connection may go.
pub(super) enum Scope {
    /// To whatever host they name, at this port.
    Port(u16),
    /// To this host and port, which were asked for before.
    Tunnel(RequestHost, u16),
    /// To this host and port, within TLS that was opened.
    Inspected(Arc<Inspection>, HostName, u16),
}

/// Serves one connection that carries requests.
pub(super) async fn serve<C: Client>(mut session: Session<'_, C>, scope: Scope) -> io::Result<()> {
    let mut upstream = None;
    while let Some(read) = read_head(&mut session).await {
        let asked = read
            .map_err(Denial::from)
            .and_then(|head| Ask::within(head, &scope));
        let served = match asked {
            Ok(ask) => match session.core.beacon_at(&ask.host) {
                Some(says) => Served::Refused(Answer::beacon(says)),
                None => serve_one(&mut session, ask, &mut upstream, scope.protocol()).await?,
            },
            Err(denial) => {
                session.core.notary.denied(scope.subject(), &denial);
                Served::Refused(Answer::denied(&denial, None))
            }
        };
        match served {
            Served::Open => {}
            Served::Closed => return Ok(()),
            Served::Refused(answer) => {
                session.client.say_goodbye(&answer.to_bytes()).await;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What became of a connection after one request.
pub(super) enum Served {
    /// It can carry another one.
    Open,
    /// It has to be closed.
    Closed,
    /// It has to be closed with this answer.
    Refused(Answer),
}

/// The connection that requests are passed on over, kept for the next one.
pub(super) type Kept = Option<Upstream>;

/// Passes one request on, if it may pass.
pub(super) async fn serve_one<C: Client>(
    session: &mut Session<'_, C>,
    ask: Ask,
    upstream: &mut Kept,
    protocol: Protocol,
) -> io::Result<Served> {
    let permit = match session.core.admit(protocol, ask.request()) {
        Ok(permit) => permit,
        Err(denial) => return Ok(Served::Refused(Answer::denied(&denial, Some(&ask.host)))),
    };
    let _working = session.seat.work();
    let ended = tokio::select! {
        ended = exchange(session, ask, upstream, &permit) => ended?,
        () = permit.revoked() => Ended::Broken,
    };
    Ok(match ended {
        Ended::Open => Served::Open,
        Ended::Broken => Served::Closed,
        Ended::Unanswered(answer) => Served::Refused(answer),
    })
}

/// The head of the next request; `None` when the client is done.
pub(super) async fn read_head<C: Client>(
    session: &mut Session<'_, C>,
) -> Option<Result<RequestHead, HeadError>> {
    if session.client.buffer.is_empty() && !matches!(session.client.fill().await, Ok(1..)) {
        return None;
    }
    session.seat.touch();
    let most = session.core.limits.head_bytes;
    let client = &mut session.client;
    let mut seen = 0;
    let reading = async {
        loop {
            if let Some(end) = end_of_head(&client.buffer, seen)? {
                return RequestHead::parse(client.buffer.split_to(end).freeze());
            }
            seen = client.buffer.len();
            if seen > most {
                return Err(HeadError::TooLong);
            }
            client.fill_some().await.map_err(|_| HeadError::CutOff)?;
        }
    };
    let read = timeout(session.core.limits.hello, reading).await;
    Some(read.unwrap_or(Err(HeadError::CutOff)))
}

/// The host and port that a CONNECT asks for. Where it says them twice, it must be alike.
pub(super) fn parse_connect(head: &RequestHead) -> Result<(RequestHost, u16), HeadError> {
    let (_, port) = head.target.rsplit_once(':').ok_or(HeadError::Host)?;
    let port: u16 = port.parse().map_err(|_| HeadError::Host)?;
    let target = ask::parse_authority(&head.target, port)?;
    let host = head.fields.one("host").map_err(|_| HeadError::Host)?;
    let said = match host.map(std::str::from_utf8) {
        None => return Ok(target),
        Some(host) => ask::parse_authority(host.map_err(|_| HeadError::Host)?, port)?,
    };
    if said == target {
        Ok(target)
    } else {
        Err(HeadError::Host)
    }
}

impl From<HeadError> for Denial {
    fn from(error: HeadError) -> Self {
        Self::Invalid(error.reason())
    }
}

impl Scope {
    fn protocol(&self) -> Protocol {
        match self {
            Self::Port(_) | Self::Tunnel(..) => Protocol::Http,
            Self::Inspected(..) => Protocol::Https,
        }
    }

    fn subject(&self) -> Subject {
        let (host, port) = match self {
            Self::Port(port) => (None, *port),
            Self::Tunnel(host, port) => (Some(host.to_string()), *port),
            Self::Inspected(_, name, port) => (Some(name.to_string()), *port),
        };
        Subject {
            protocol: self.protocol(),
            host,
            port: Some(port),
        }
    }
}
