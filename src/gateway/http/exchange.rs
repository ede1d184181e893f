//! Forwards one request and passes its response back, without buffering the bodies.

use std::io;
use std::pin::pin;

use bytes::Buf;
use futures_util::FutureExt;
use hyper::Version;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::AfterRequest;
use super::answer;
use super::body::MessageBody;
use super::head::{self, ResponseHead};
use super::request::ForwardRequest;
use crate::gateway::dial::DialError;
use crate::gateway::permit::{Permit, TrafficCounter};
use crate::gateway::relay::relay;
use crate::gateway::shared::{GatewayCore, ServedConnection};
use crate::gateway::stream::{Buffered, ByteStream};
use crate::network::RequestHost;

/// The longest head of a response, in bytes.
const MAX_HEAD: usize = 256 * 1024;
/// The most interim responses (1xx) before the final one.
const MAX_INTERIM: usize = 16;
/// Header fields of a response that apply to one connection only.
const NOT_PASSED_BACK: [&[u8]; 5] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"proxy-authenticate",
    b"upgrade",
];

/// A connection to the host of a request.
pub(in crate::gateway) struct UpstreamConnection {
    host: RequestHost,
    port: u16,
    stream: Buffered<Box<dyn ByteStream>>,
}

/// Forwards a request and passes its response back. `kept` is the upstream connection of the last request.
pub(super) async fn exchange<C: ByteStream>(
    connection: &mut ServedConnection<'_, C>,
    request: ForwardRequest,
    kept: &mut Option<UpstreamConnection>,
    permit: &Permit,
) -> io::Result<AfterRequest> {
    let mut reused = kept
        .take()
        .filter(|upstream| upstream.host == request.host && upstream.port == request.port);
    // A host may close an idle connection at any time. Then a repeatable request is sent again.
    let repeats = reused.is_some() && request.is_repeatable();
    let attempts = if repeats { 2 } else { 1 };
    for _ in 0..attempts {
        let mut upstream = match reused.take().and_then(UpstreamConnection::if_idle) {
            Some(upstream) => upstream,
            None => match UpstreamConnection::open(connection.core, &request, permit).await {
                Ok(upstream) => upstream,
                Err(answer) => return Ok(AfterRequest::CloseWith(answer)),
            },
        };
        match transfer(connection, &request, &mut upstream, permit).await {
            Err(TransferError::NoResponse) => {}
            Err(TransferError::Read | TransferError::Write) => return Ok(AfterRequest::Close),
            Ok(Transferred::Upgraded) => {
                let upstream = &mut upstream.stream;
                relay(&mut connection.client, upstream, permit, connection.slot).await?;
                return Ok(AfterRequest::Close);
            }
            Ok(Transferred::Response {
                keep_client,
                keep_upstream,
            }) => {
                *kept = keep_upstream.then_some(upstream);
                if keep_client {
                    return Ok(AfterRequest::KeepOpen);
                }
                // In TLS the client must see a regular end, not an interrupted connection.
                let _ = connection.client.stream.shutdown().await;
                return Ok(AfterRequest::Close);
            }
        }
    }
    let answer = answer::bad_gateway("the host sent no valid response");
    Ok(AfterRequest::CloseWith(answer))
}

impl UpstreamConnection {
    async fn open(core: &GatewayCore, request: &ForwardRequest, permit: &Permit) -> Result<Self, Vec<u8>> {
        match core.open(permit, request.inspection.as_deref()).await {
            Ok(stream) => Ok(Self {
                host: request.host.clone(),
                port: request.port,
                stream: Buffered::new(stream),
            }),
            Err(DialError::Denied(denial)) => Err(answer::denied(&denial, Some(&request.host))),
            Err(error) => Err(answer::bad_gateway(&error.to_string())),
        }
    }

    /// Itself, unless the host closed the connection or sent unexpected bytes.
    fn if_idle(mut self) -> Option<Self> {
        let is_idle = self.stream.buffer.is_empty() && self.stream.fill().now_or_never().is_none();
        is_idle.then_some(self)
    }
}

/// What was passed back.
enum Transferred {
    /// A complete response, after which these connections can be used again.
    Response { keep_client: bool, keep_upstream: bool },
    /// The agreement to an upgrade: the connection is a WebSocket now.
    Upgraded,
}

/// Why there is no complete response.
enum TransferError {
    /// The host sent no final response, or an invalid one. At most interim responses were passed back.
    NoResponse,
    /// A message broke off.
    Read,
    /// A part of a message could not be sent.
    Write,
}

/// Only writes are errors of this type.
impl From<io::Error> for TransferError {
    fn from(_: io::Error) -> Self {
        Self::Write
    }
}

/// Sends the request while it waits for the response: a host may respond before it received the whole request.
async fn transfer<C: ByteStream>(
    connection: &mut ServedConnection<'_, C>,
    request: &ForwardRequest,
    upstream: &mut UpstreamConnection,
    permit: &Permit,
) -> Result<Transferred, TransferError> {
    let ServedConnection { client, slot, .. } = connection;
    let (client_read, mut client_write) = tokio::io::split(&mut client.stream);
    let mut from_client = Buffered::with_buffer(client_read, std::mem::take(&mut client.buffer));
    let (upstream_read, mut upstream_write) = tokio::io::split(&mut upstream.stream.stream);
    let mut from_upstream = Buffered::with_buffer(upstream_read, std::mem::take(&mut upstream.stream.buffer));
    let (sent, received) = (permit.sent(slot), permit.received(slot));
    let (response, request_complete) = {
        let mut sending = pin!(async {
            sent.send(&request.upstream_head(), &mut upstream_write).await?;
            copy(request.body.clone(), &mut from_client, &mut upstream_write, sent).await
        });
        let mut receiving = pin!(pass_back(
            request,
            &mut from_upstream,
            &mut client_write,
            received
        ));
        tokio::select! {
            biased;
            sent = &mut sending => match sent {
                Ok(()) => (receiving.await, true),
                // The host may have refused the request and closed its side. Its response is still read.
                Err(TransferError::Write) => (receiving.await, false),
                Err(error) => (Err(error), false),
            },
            response = &mut receiving => (response, false),
        }
    };
    client.buffer = from_client.buffer;
    upstream.stream.buffer = from_upstream.buffer;
    // After an incomplete request neither connection is at the start of a message.
    match response {
        Ok(Transferred::Response { .. }) if !request_complete => Ok(Transferred::Response {
            keep_client: false,
            keep_upstream: false,
        }),
        response => response,
    }
}

async fn pass_back<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    request: &ForwardRequest,
    from: &mut Buffered<R>,
    to: &mut W,
    counter: TrafficCounter<'_>,
) -> Result<Transferred, TransferError> {
    for _ in 0..MAX_INTERIM {
        let head = head::read(from, MAX_HEAD).await;
        let head = head.and_then(|head| ResponseHead::parse(&head));
        let head = head.map_err(|_| TransferError::NoResponse)?;
        match head.status {
            101 if request.wants_websocket() && head.fields.lists("upgrade", "websocket") => {
                let fields = "connection: Upgrade\r\nupgrade: websocket\r\n";
                counter.send(&client_head(&head, fields), to).await?;
                return Ok(Transferred::Upgraded);
            }
            101 => return Err(TransferError::NoResponse),
            100..200 if request.head.version == Version::HTTP_11 => {
                counter.send(&client_head(&head, ""), to).await?;
            }
            100..200 => {}
            _ => {
                let body = MessageBody::from_response(&head, &request.head.method);
                let body = body.map_err(|_| TransferError::NoResponse)?;
                let is_delimited = body != MessageBody::UntilClose;
                let keep_client = is_delimited && request.head.fields.keep_open(request.head.version);
                let fields = if keep_client { "" } else { "connection: close\r\n" };
                counter.send(&client_head(&head, fields), to).await?;
                copy(body, from, to, counter).await?;
                return Ok(Transferred::Response {
                    keep_client,
                    keep_upstream: is_delimited && head.fields.keep_open(head.version),
                });
            }
        }
    }
    Err(TransferError::NoResponse)
}

/// The head of a response without the fields of the upstream connection, and with those of the client's.
fn client_head(head: &ResponseHead, fields: &str) -> Vec<u8> {
    let mut bytes = [b"HTTP/1.1 ", head.status_text.as_ref(), b"\r\n"].concat();
    head.fields.write_except(&NOT_PASSED_BACK, &mut bytes);
    bytes.extend(fields.as_bytes());
    bytes.extend(b"\r\n");
    bytes
}

/// Copies a body to its end, each piece as soon as it arrives.
async fn copy<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut body: MessageBody,
    from: &mut Buffered<R>,
    to: &mut W,
    counter: TrafficCounter<'_>,
) -> Result<(), TransferError> {
    while !body.is_over() {
        if from.buffer.is_empty() {
            match from.fill().await {
                Ok(0) if body == MessageBody::UntilClose => return Ok(()),
                Ok(0) | Err(_) => return Err(TransferError::Read),
                Ok(_) => {}
            }
        }
        let length = body.advance(&from.buffer).map_err(|_| TransferError::Read)?;
        counter.send(&from.buffer[..length], to).await?;
        from.buffer.advance(length);
    }
    Ok(())
}
