//! HTTP/1 connections. The policy judges the host of every request.

pub(super) mod answer;
mod body;
mod exchange;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzz;
mod head;
mod request;

use std::io;
use std::sync::Arc;

use tokio::time::timeout;

use super::audit::AuditProtocol;
use super::inspect::Inspection;
use super::shared::{GatewayCore, ServedConnection};
use super::stream::ByteStream;
use crate::network::probe::BeaconMatch;
use crate::network::{Denial, RequestHost};
use exchange::{UpstreamConnection, exchange};
use head::{AMBIGUOUS_HOST, HEAD_INCOMPLETE, RequestHead};

pub(super) use request::Authority;
use request::ForwardRequest;

/// Where the requests of a connection come from, which limits the hosts that they may be for.
pub(super) enum RequestScope {
    /// Plain HTTP on this port, for any host.
    Port(u16),
    /// Plain HTTP on a connection that is for this host only.
    Tunnel { host: RequestHost, port: u16 },
    /// An inspected TLS connection. Its requests are sent over another one.
    Inspected {
        host: RequestHost,
        port: u16,
        inspection: Arc<Inspection>,
    },
    /// The explicit proxy. A request names its host and port.
    Proxy,
}

impl RequestScope {
    /// The protocol of audit records.
    fn protocol(&self) -> AuditProtocol {
        match self {
            Self::Port(_) | Self::Tunnel { .. } => AuditProtocol::Http,
            Self::Inspected { .. } => AuditProtocol::Https,
            Self::Proxy => AuditProtocol::Proxy,
        }
    }

    /// The only host; `None` when a request can be for any.
    fn host(&self) -> Option<&RequestHost> {
        match self {
            Self::Tunnel { host, .. } | Self::Inspected { host, .. } => Some(host),
            Self::Port(_) | Self::Proxy => None,
        }
    }

    /// The only port; `None` when a request can be for any.
    fn port(&self) -> Option<u16> {
        match self {
            Self::Port(port) | Self::Tunnel { port, .. } | Self::Inspected { port, .. } => Some(*port),
            Self::Proxy => None,
        }
    }
}

/// What happens to the client's connection after a request.
enum AfterRequest {
    /// It can carry another request.
    KeepOpen,
    /// It is closed.
    Close,
    /// It is closed after this response.
    CloseWith(Vec<u8>),
}

/// Serves one connection that carries requests.
pub(super) async fn serve<C: ByteStream>(
    mut connection: ServedConnection<'_, C>,
    scope: RequestScope,
) -> io::Result<()> {
    let mut upstream = None;
    while let Some(head) = read_head(&mut connection, &scope).await {
        if !serve_one(&mut connection, head, &scope, &mut upstream).await? {
            break;
        }
    }
    Ok(())
}

/// Serves one request. `upstream` is the connection that is kept for the next one. Returns whether there can be one.
pub(super) async fn serve_one<C: ByteStream>(
    connection: &mut ServedConnection<'_, C>,
    head: RequestHead,
    scope: &RequestScope,
    upstream: &mut Option<UpstreamConnection>,
) -> io::Result<bool> {
    let request = match ForwardRequest::new(head, scope) {
        Ok(request) => request,
        Err(denial) => {
            deny(connection, scope, &denial).await;
            return Ok(false);
        }
    };
    let after = match answer_probe(connection.core, &request, scope) {
        Some(answer) => AfterRequest::CloseWith(answer),
        None => forward(connection, request, upstream, scope.protocol()).await?,
    };
    if let AfterRequest::CloseWith(answer) = &after {
        connection.client.close_with(answer).await;
    }
    Ok(matches!(after, AfterRequest::KeepOpen))
}

/// The response to a probe of the gateway itself, which is not recorded.
fn answer_probe(core: &GatewayCore, request: &ForwardRequest, scope: &RequestScope) -> Option<Vec<u8>> {
    let (beacon, name) = core.setup.beacon.as_ref().zip(request.host.name())?;
    match (beacon.compare(name), scope) {
        (BeaconMatch::Exact, _) => Some(answer::beacon(&beacon.nonce)),
        (BeaconMatch::Below, RequestScope::Proxy) => {
            let denial = core.judge(&request.policy_request()).err()?;
            Some(answer::denied(&denial, Some(&request.host)))
        }
        _ => None,
    }
}

/// Forwards one request, if the policy allows it.
async fn forward<C: ByteStream>(
    connection: &mut ServedConnection<'_, C>,
    mut request: ForwardRequest,
    upstream: &mut Option<UpstreamConnection>,
    protocol: AuditProtocol,
) -> io::Result<AfterRequest> {
    let permit = match connection.core.admit(protocol, request.policy_request()) {
        Ok(permit) => permit,
        Err(denial) => {
            let answer = answer::denied(&denial, Some(&request.host));
            return Ok(AfterRequest::CloseWith(answer));
        }
    };
    if let Err(denial) = request.insert_secrets(&connection.core.setup.secrets) {
        let answer = answer::denied(&denial, Some(&request.host));
        permit.revoke(denial);
        return Ok(AfterRequest::CloseWith(answer));
    }
    let _active = connection.slot.activate();
    tokio::select! {
        after = exchange(connection, request, upstream, &permit) => after,
        () = permit.until_revoked() => Ok(AfterRequest::Close),
    }
}

/// The head of the next request; `None` when the connection is over, or the head is invalid. That is denied here.
pub(super) async fn read_head<C: ByteStream>(
    connection: &mut ServedConnection<'_, C>,
    scope: &RequestScope,
) -> Option<RequestHead> {
    if connection.client.buffer.is_empty() && !matches!(connection.client.fill().await, Ok(1..)) {
        return None;
    }
    connection.slot.touch();
    let limits = connection.core.setup.limits;
    let reading = head::read(&mut connection.client, limits.max_head_bytes);
    let read = timeout(limits.receive_timeout, reading).await;
    let head = read.unwrap_or(Err(HEAD_INCOMPLETE));
    match head.and_then(|head| RequestHead::parse(&head)) {
        Ok(head) => Some(head),
        Err(denial) => {
            deny(connection, scope, &denial).await;
            None
        }
    }
}

/// Denies an invalid request and closes the connection.
async fn deny<C: ByteStream>(
    connection: &mut ServedConnection<'_, C>,
    scope: &RequestScope,
    denial: &Denial,
) {
    let core = connection.core;
    core.record_denial(scope.protocol(), scope.host(), scope.port(), denial);
    connection.client.close_with(&answer::denied(denial, None)).await;
}

/// The host and port of a CONNECT request. A Host field must match them.
pub(super) fn parse_connect(head: &RequestHead) -> Result<Authority, Denial> {
    let (_, port) = head.target.rsplit_once(':').ok_or(AMBIGUOUS_HOST)?;
    let port: u16 = port.parse().map_err(|_| AMBIGUOUS_HOST)?;
    let target = request::parse_authority(&head.target, port)?;
    if let Some(host) = head.fields.one("host").map_err(|_| AMBIGUOUS_HOST)? {
        let host = std::str::from_utf8(host).map_err(|_| AMBIGUOUS_HOST)?;
        if request::parse_authority(host, port)? != target {
            return Err(AMBIGUOUS_HOST);
        }
    }
    Ok(target)
}
