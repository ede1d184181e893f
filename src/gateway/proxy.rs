//! The explicit HTTP proxy: absolute URLs and CONNECT, for clients with the phantom of the run.

use std::io;

use tokio::io::AsyncWriteExt;

use super::audit::AuditProtocol;
use super::http::{self, Authority, RequestScope, answer};
use super::shared::ServedConnection;
use super::{tcp, tls};
use crate::network::{Denial, PolicyRequest, RequestHost};

const HTTP_PORT: u16 = 80;
const TLS_PORT: u16 = 443;

/// Serves one connection to the proxy.
pub(super) async fn serve(mut connection: ServedConnection<'_>) -> io::Result<()> {
    let scope = RequestScope::Proxy;
    let mut upstream = None;
    while let Some(head) = http::read_head(&mut connection, &scope).await {
        let authorization = head.fields.one("proxy-authorization").ok().flatten();
        let phantom = connection.core.setup.phantom.as_ref().zip(authorization);
        if !phantom.is_some_and(|(phantom, header)| phantom.authorizes(header)) {
            let denial = Denial::Invalid(answer::WRONG_PHANTOM);
            connection
                .core
                .record_denial(AuditProtocol::Proxy, None, None, &denial);
            let answer = answer::proxy_authentication_required();
            connection.client.close_with(&answer).await;
            return Ok(());
        }
        if head.method == "CONNECT" {
            return match http::parse_connect(&head) {
                Ok(Authority { host, port }) => connect(connection, host, port).await,
                Err(denial) => refuse(connection, None, &denial).await,
            };
        }
        if !http::serve_one(&mut connection, head, &scope, &mut upstream).await? {
            break;
        }
    }
    Ok(())
}

/// Opens a tunnel. Its traffic must be for this host.
async fn connect(mut connection: ServedConnection<'_>, host: RequestHost, port: u16) -> io::Result<()> {
    match connection.core.judge(&PolicyRequest::opaque(host.clone(), port)) {
        Ok(_) => {}
        // Plain HTTP is judged request by request later.
        Err(Denial::NotInspected(_)) if port != TLS_PORT => {}
        // So is inspected TLS, where a credential can be added too.
        Err(Denial::NotInspected(_) | Denial::Injected(_)) if connection.core.inspects(&host, port) => {}
        Err(denial) => return refuse(connection, Some((host, port)), &denial).await,
    }
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    connection.client.stream.write_all(established).await?;
    match (host, port) {
        (RequestHost::Name(name), TLS_PORT) => tls::serve(connection, Some(name), port).await,
        (host, HTTP_PORT) => http::serve(connection, RequestScope::Tunnel { host, port }).await,
        (host, port) => tcp::serve(connection, host, port).await,
    }
}

async fn refuse(
    mut connection: ServedConnection<'_>,
    target: Option<(RequestHost, u16)>,
    denial: &Denial,
) -> io::Result<()> {
    let (host, port) = target.unzip();
    connection
        .core
        .record_denial(AuditProtocol::Proxy, host.as_ref(), port, denial);
    let answer = answer::denied(denial, host.as_ref());
    connection.client.close_with(&answer).await;
    Ok(())
}
