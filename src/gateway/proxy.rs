//! The explicit proxy: whole addresses and CONNECT, for whoever has the run's phantom.

use std::io;

use tokio::io::AsyncWriteExt;

use super::audit::Protocol;
use super::core::{Core, Session};
use super::http::{self, Answer, Ask, Scope, Served};
use super::permit::Subject;
use super::stream::Client;
use super::{tcp, tls};
use crate::network::probe::BeaconMatch;
use crate::network::{Denial, PolicyRequest, PolicyVerdict, RequestHost};

const HTTP_PORT: u16 = 80;
const TLS_PORT: u16 = 443;

/// Serves one connection to the proxy.
pub(super) async fn serve<C: Client>(mut session: Session<'_, C>) -> io::Result<()> {
    let mut upstream = None;
    while let Some(read) = http::read_head(&mut session).await {
        let head = match read {
            Ok(head) => head,
            Err(error) => return refuse(session, None, &error.into()).await,
        };
        let authorization = head.fields.one("proxy-authorization").ok().flatten();
        let phantom = session.core.phantom.as_ref().zip(authorization);
        if !phantom.is_some_and(|(phantom, header)| phantom.authorizes(header)) {
            let denial = Denial::Invalid("not this run's phantom");
            session.core.notary.denied(subject(None, None), &denial);
            session
                .client
                .say_goodbye(&Answer::unauthorized().to_bytes())
                .await;
            return Ok(());
        }
        if head.method == "CONNECT" {
            return match http::parse_connect(&head) {
                Ok((host, port)) => connect(session, host, port).await,
                Err(error) => refuse(session, None, &error.into()).await,
            };
        }
        let ask = match Ask::of_proxy(head) {
            Ok(ask) => ask,
            Err(denial) => return refuse(session, None, &denial).await,
        };
        let served = match of_itself(session.core, &ask) {
            Some(answer) => Served::Refused(answer),
            None => http::serve_one(&mut session, ask, &mut upstream, Protocol::Proxy).await?,
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

/// What is answered to whoever tries the gateway itself out, which is written down nowhere.
fn of_itself(core: &Core, ask: &Ask) -> Option<Answer> {
    match core.place_of(&ask.host) {
        BeaconMatch::Exact => core.beacon_at(&ask.host).map(Answer::beacon),
        BeaconMatch::Below => match core.judge(&ask.request()) {
            PolicyVerdict::Denied(denial) => Some(Answer::denied(&denial, Some(&ask.host))),
            PolicyVerdict::Allowed(_) => None,
        },
        BeaconMatch::Other => None,
    }
}

/// Opens a tunnel. What goes through it must be for the host that was asked for.
async fn connect<C: Client>(mut session: Session<'_, C>, host: RequestHost, port: u16) -> io::Result<()> {
    match session.core.judge(&PolicyRequest::opaque(host.clone(), port)) {
        PolicyVerdict::Allowed(_) => {}
        // In plain HTTP the methods and paths can be seen, and are judged there.
        PolicyVerdict::Denied(Denial::NotInspected(_)) if port != TLS_PORT => {}
        // So they can in TLS that is opened, and there a credential can be added.
        PolicyVerdict::Denied(Denial::NotInspected(_) | Denial::Injected(_))
            if session.core.inspects(&host, port) => {}
        PolicyVerdict::Denied(denial) => return refuse(session, Some((host, port)), &denial).await,
    }
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    session.client.stream.write_all(established).await?;
    match (host, port) {
        (RequestHost::Name(name), TLS_PORT) => {
            let expected = Some(name);
            tls::serve(session, tls::Target { port, expected }).await
        }
        (host, HTTP_PORT) => http::serve(session, Scope::Tunnel(host, port)).await,
        (host, port) => tcp::serve(session, host, port).await,
    }
}

async fn refuse<C: Client>(
    session: Session<'_, C>,
    target: Option<(RequestHost, u16)>,
    denial: &Denial,
) -> io::Result<()> {
    let (host, port) = target.unzip();
    let shown = host.as_ref().map(ToString::to_string);
    session.core.notary.denied(subject(shown, port), denial);
    let answer = Answer::denied(denial, host.as_ref());
    session.client.say_goodbye(&answer.to_bytes()).await;
    Ok(())
}

fn subject(host: Option<String>, port: Option<u16>) -> Subject {
    Subject {
        protocol: Protocol::Proxy,
        host,
        port,
    }
}
