//! The explicit HTTP proxy: absolute URLs and CONNECT, for clients with the phantom of the run.

use std::io;

use tokio::io::AsyncWriteExt;

use super::audit::AuditProtocol;
use super::core::{GatewayCore, GatewaySession};
use super::http::{self, AfterRequest, Authority, ForwardRequest, HttpAnswer, RequestScope};
use super::permit::AuditSubject;
use super::stream::ClientStream;
use super::{tcp, tls};
use crate::network::probe::BeaconMatch;
use crate::network::{Denial, PolicyRequest, PolicyVerdict, RequestHost};

const HTTP_PORT: u16 = 80;
const TLS_PORT: u16 = 443;

/// Serves one connection to the proxy.
pub(super) async fn serve<C: ClientStream>(mut session: GatewaySession<'_, C>) -> io::Result<()> {
    let mut upstream = None;
    while let Some(read) = http::read_head(&mut session).await {
        let head = match read {
            Ok(head) => head,
            Err(error) => return refuse(session, None, &error.into()).await,
        };
        let authorization = head.fields.one("proxy-authorization").ok().flatten();
        let phantom = session.core.setup.phantom.as_ref().zip(authorization);
        if !phantom.is_some_and(|(phantom, header)| phantom.authorizes(header)) {
            let subject = AuditSubject::new(AuditProtocol::Proxy, None, None);
            let denial = Denial::Invalid(http::WRONG_PHANTOM);
            session.core.audit.denied(subject, &denial);
            let answer = HttpAnswer::proxy_authentication_required();
            session.client.close_with(&answer.to_bytes()).await;
            return Ok(());
        }
        if head.method == "CONNECT" {
            return match http::parse_connect(&head) {
                Ok(Authority { host, port }) => connect(session, host, port).await,
                Err(error) => refuse(session, None, &error.into()).await,
            };
        }
        let request = match ForwardRequest::to_proxy(head) {
            Ok(request) => request,
            Err(denial) => return refuse(session, None, &denial).await,
        };
        let after = match answer_probe(session.core, &request) {
            Some(answer) => AfterRequest::CloseWith(answer),
            None => http::serve_one(&mut session, request, &mut upstream, AuditProtocol::Proxy).await?,
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

/// The response to a probe of the gateway itself, which is not recorded.
fn answer_probe(core: &GatewayCore, request: &ForwardRequest) -> Option<HttpAnswer> {
    match core.beacon_place(&request.host) {
        BeaconMatch::Exact => core.beacon_at(&request.host).map(HttpAnswer::beacon),
        BeaconMatch::Below => match core.judge(&request.policy_request()) {
            PolicyVerdict::Denied(denial) => Some(HttpAnswer::denied(&denial, Some(&request.host))),
            PolicyVerdict::Allowed(_) => None,
        },
        BeaconMatch::Other => None,
    }
}

/// Opens a tunnel. Its traffic must be for this host.
async fn connect<C: ClientStream>(
    mut session: GatewaySession<'_, C>,
    host: RequestHost,
    port: u16,
) -> io::Result<()> {
    match session.core.judge(&PolicyRequest::opaque(host.clone(), port)) {
        PolicyVerdict::Allowed(_) => {}
        // Plain HTTP is judged request by request later.
        PolicyVerdict::Denied(Denial::NotInspected(_)) if port != TLS_PORT => {}
        // So is inspected TLS, where a credential can be added too.
        PolicyVerdict::Denied(Denial::NotInspected(_) | Denial::Injected(_))
            if session.core.inspects(&host, port) => {}
        PolicyVerdict::Denied(denial) => return refuse(session, Some((host, port)), &denial).await,
    }
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    session.client.stream.write_all(established).await?;
    match (host, port) {
        (RequestHost::Name(name), TLS_PORT) => tls::serve(session, Some(name), port).await,
        (host, HTTP_PORT) => http::serve(session, RequestScope::Tunnel(host, port)).await,
        (host, port) => tcp::serve(session, host, port).await,
    }
}

async fn refuse<C: ClientStream>(
    session: GatewaySession<'_, C>,
    target: Option<(RequestHost, u16)>,
    denial: &Denial,
) -> io::Result<()> {
    let (host, port) = target.unzip();
    let subject = AuditSubject::new(AuditProtocol::Proxy, host.as_ref().map(ToString::to_string), port);
    session.core.audit.denied(subject, denial);
    let answer = HttpAnswer::denied(denial, host.as_ref());
    session.client.close_with(&answer.to_bytes()).await;
    Ok(())
}
