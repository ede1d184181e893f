//! HTTP/1 connections. The policy judges the host of every request.

mod answer;
mod body;
mod exchange;
mod head;
mod request;

use std::io;
use std::sync::Arc;

use tokio::time::timeout;

use super::audit::AuditProtocol;
use super::core::GatewaySession;
use super::inspect::Inspection;
use super::permit::AuditSubject;
use super::stream::ClientStream;
use crate::network::{Denial, HostName, RequestHost};
use exchange::{UpstreamConnection, exchange};
use head::{HttpHeadError, RequestHead};

pub(super) use answer::{HttpAnswer, WRONG_PHANTOM};
pub(super) use request::{Authority, ForwardRequest, UpstreamTransport};

/// Which hosts the requests of a connection may be for.
pub(super) enum RequestScope {
    /// Any host that the policy allows, at this port.
    Port(u16),
    /// The host and port of a tunnel.
    Tunnel(RequestHost, u16),
    /// The host and port of an inspected TLS connection.
    Inspected(Arc<Inspection>, HostName, u16),
}

/// What happens to the client's connection after a request.
pub(super) enum AfterRequest {
    /// It can carry another request.
    KeepOpen,
    /// It is closed.
    Close,
    /// It is closed after this response.
    CloseWith(HttpAnswer),
}

/// Serves one connection that carries requests.
pub(super) async fn serve<C: ClientStream>(
    mut session: GatewaySession<'_, C>,
    scope: RequestScope,
) -> io::Result<()> {
    let mut upstream = None;
    while let Some(read) = read_head(&mut session).await {
        let request = read
            .map_err(Denial::from)
            .and_then(|head| ForwardRequest::in_scope(head, &scope));
        let after = match request {
            Ok(request) => match session.core.beacon_at(&request.host) {
                Some(text) => AfterRequest::CloseWith(HttpAnswer::beacon(text)),
                None => serve_one(&mut session, request, &mut upstream, scope.protocol()).await?,
            },
            Err(denial) => {
                session.core.audit.denied(scope.subject(), &denial);
                AfterRequest::CloseWith(HttpAnswer::denied(&denial, None))
            }
        };
        match after {
            AfterRequest::KeepOpen => {}
            AfterRequest::Close => return Ok(()),
            AfterRequest::CloseWith(answer) => {
                session.client.close_with(&answer.to_bytes()).await;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Forwards one request, if the policy allows it. `upstream` is the connection that is kept for the next request.
pub(super) async fn serve_one<C: ClientStream>(
    session: &mut GatewaySession<'_, C>,
    request: ForwardRequest,
    upstream: &mut Option<UpstreamConnection>,
    protocol: AuditProtocol,
) -> io::Result<AfterRequest> {
    let permit = match session.core.admit(protocol, request.policy_request()) {
        Ok(permit) => permit,
        Err(denial) => {
            let answer = HttpAnswer::denied(&denial, Some(&request.host));
            return Ok(AfterRequest::CloseWith(answer));
        }
    };
    let _active = session.slot.activate();
    tokio::select! {
        after = exchange(session, request, upstream, &permit) => after,
        () = permit.revoked() => Ok(AfterRequest::Close),
    }
}

/// The head of the next request; `None` when the client closed the connection.
pub(super) async fn read_head<C: ClientStream>(
    session: &mut GatewaySession<'_, C>,
) -> Option<Result<RequestHead, HttpHeadError>> {
    if session.client.buffer.is_empty() && !matches!(session.client.fill().await, Ok(1..)) {
        return None;
    }
    session.slot.touch();
    let limits = session.core.setup.limits;
    let reading = head::read(&mut session.client, limits.head_bytes);
    let read = timeout(limits.hello, reading).await;
    let head = read.unwrap_or(Err(HttpHeadError::Incomplete));
    Some(head.and_then(RequestHead::parse))
}

/// The host and port of a CONNECT request. A Host field must match them.
pub(super) fn parse_connect(head: &RequestHead) -> Result<Authority, HttpHeadError> {
    let (_, port) = head.target.rsplit_once(':').ok_or(HttpHeadError::Host)?;
    let port: u16 = port.parse().map_err(|_| HttpHeadError::Host)?;
    let target = request::parse_authority(&head.target, port)?;
    if let Some(host) = head.fields.one("host").map_err(|_| HttpHeadError::Host)? {
        let host = std::str::from_utf8(host).map_err(|_| HttpHeadError::Host)?;
        if request::parse_authority(host, port)? != target {
            return Err(HttpHeadError::Host);
        }
    }
    Ok(target)
}

impl From<HttpHeadError> for Denial {
    fn from(error: HttpHeadError) -> Self {
        Self::Invalid(error.reason())
    }
}

impl RequestScope {
    fn port(&self) -> u16 {
        let (Self::Port(port) | Self::Tunnel(_, port) | Self::Inspected(_, _, port)) = self;
        *port
    }

    fn protocol(&self) -> AuditProtocol {
        match self {
            Self::Port(_) | Self::Tunnel(..) => AuditProtocol::Http,
            Self::Inspected(..) => AuditProtocol::Https,
        }
    }

    fn subject(&self) -> AuditSubject {
        let host = match self {
            Self::Port(_) => None,
            Self::Tunnel(host, _) => Some(host.to_string()),
            Self::Inspected(_, name, _) => Some(name.to_string()),
        };
        AuditSubject::new(self.protocol(), host, Some(self.port()))
    }
}
