//! Forwards one request and passes its response back, without buffering the bodies.

use std::io;
use std::pin::pin;
use std::sync::atomic::AtomicU64;

use bytes::Buf;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::AfterRequest;
use super::answer::HttpAnswer;
use super::body::MessageBody;
use super::head::{self, HttpVersion, ResponseHead};
use super::request::ForwardRequest;
use crate::gateway::core::{GatewayCore, GatewaySession};
use crate::gateway::dial::DialError;
use crate::gateway::permit::Permit;
use crate::gateway::relay::{self, relay};
use crate::gateway::slots::ConnectionSlot;
use crate::gateway::stream::{Buffered, ByteStream, ClientStream};
use crate::network::RequestHost;

/// The longest head of a response, in bytes.
const MAX_HEAD: usize = 256 * 1024;
/// The most interim responses (1xx) before the final one.
const MAX_INTERIM: usize = 16;
/// Header fields of a response that apply to one connection only.
const NOT_PASSED_BACK: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "upgrade",
];

/// A connection to the host of a request.
pub(in crate::gateway) struct UpstreamConnection {
    host: RequestHost,
    port: u16,
    stream: Buffered<Box<dyn ByteStream>>,
}

/// Forwards a request and passes its response back. `kept` is the upstream connection of the last request.
pub(super) async fn exchange<C: ClientStream>(
    session: &mut GatewaySession<'_, C>,
    request: ForwardRequest,
    kept: &mut Option<UpstreamConnection>,
    permit: &Permit,
) -> io::Result<AfterRequest> {
    let mut reused = kept.take().filter(|upstream| upstream.serves(&request));
    // A host may close an idle connection at any time. Then a repeatable request is sent again.
    let attempts = if reused.is_some() && request.is_repeatable() {
        2
    } else {
        1
    };
    for _ in 0..attempts {
        let mut upstream = match reused.take().and_then(UpstreamConnection::if_idle) {
            Some(upstream) => upstream,
            None => match UpstreamConnection::open(session.core, &request, permit).await {
                Ok(upstream) => upstream,
                Err(answer) => return Ok(AfterRequest::CloseWith(answer)),
            },
        };
        match transfer(session, &request, &mut upstream, permit).await {
            Err(TransferError::NoResponse) => {}
            Err(TransferError::Interrupted) => return Ok(AfterRequest::Close),
            Err(TransferError::Upgraded) => {
                relay(&mut session.client, &mut upstream.stream, permit, session.slot).await?;
                return Ok(AfterRequest::Close);
            }
            Ok(transferred) => {
                *kept = transferred.keep_upstream.then_some(upstream);
                if transferred.keep_client {
                    return Ok(AfterRequest::KeepOpen);
                }
                // In TLS the client must see a regular end, not an interrupted connection.
                let _ = session.client.stream.shutdown().await;
                return Ok(AfterRequest::Close);
            }
        }
    }
    let answer = HttpAnswer::bad_gateway("the host sent no valid response");
    Ok(AfterRequest::CloseWith(answer))
}

impl UpstreamConnection {
    async fn open(core: &GatewayCore, request: &ForwardRequest, permit: &Permit) -> Result<Self, HttpAnswer> {
        match core.open(permit, &request.transport).await {
            Ok(stream) => Ok(Self {
                host: request.host.clone(),
                port: request.port,
                stream: Buffered::new(stream),
            }),
            Err(DialError::Denied(denial)) => Err(HttpAnswer::denied(&denial, Some(&request.host))),
            Err(error) => Err(HttpAnswer::bad_gateway(&error.to_string())),
        }
    }

    fn serves(&self, request: &ForwardRequest) -> bool {
        self.host == request.host && self.port == request.port
    }

    /// Itself, unless the host closed the connection or sent unexpected bytes.
    fn if_idle(mut self) -> Option<Self> {
        let is_idle = self.stream.buffer.is_empty() && self.stream.fill().now_or_never().is_none();
        is_idle.then_some(self)
    }
}

/// Which connections can be used again after a response.
struct Transferred {
    keep_client: bool,
    keep_upstream: bool,
}

/// Why there is no complete response.
enum TransferError {
    /// Nothing was passed back: the host sent no response, or an invalid one.
    NoResponse,
    /// The connection broke after a part was passed back.
    Interrupted,
    /// The connection is a WebSocket now.
    Upgraded,
}

/// Sends the request while it waits for the response: a host may respond before it received the whole request.
async fn transfer<C: ClientStream>(
    session: &mut GatewaySession<'_, C>,
    request: &ForwardRequest,
    upstream: &mut UpstreamConnection,
    permit: &Permit,
) -> Result<Transferred, TransferError> {
    let GatewaySession { client, slot, .. } = session;
    let (client_read, mut client_write) = tokio::io::split(&mut client.stream);
    let mut from_client = Buffered::with_buffer(client_read, std::mem::take(&mut client.buffer));
    let (upstream_read, mut upstream_write) = tokio::io::split(&mut upstream.stream.stream);
    let mut from_upstream = Buffered::with_buffer(upstream_read, std::mem::take(&mut upstream.stream.buffer));
    let sent = Counter(&permit.traffic.sent, slot);
    let received = Counter(&permit.traffic.received, slot);
    let (response, request_complete) = {
        let mut sending = pin!(send(request, &mut from_client, &mut upstream_write, sent));
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
                Err(CopyError::Write) => (receiving.await, false),
                Err(CopyError::Read) => (Err(TransferError::Interrupted), false),
            },
            response = &mut receiving => (response, false),
        }
    };
    client.buffer = from_client.buffer;
    upstream.stream.buffer = from_upstream.buffer;
    // After an incomplete request neither connection is at the start of a message.
    response.map(|transferred| Transferred {
        keep_client: transferred.keep_client && request_complete,
        keep_upstream: transferred.keep_upstream && request_complete,
    })
}

/// Counts bytes and records activity.
#[derive(Clone, Copy)]
struct Counter<'a>(&'a AtomicU64, &'a ConnectionSlot);

impl Counter<'_> {
    async fn send(self, bytes: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> Result<(), CopyError> {
        let sent = relay::send(bytes, to, self.0).await;
        self.1.touch();
        sent.map_err(|_| CopyError::Write)
    }
}

/// Which side of a copy failed.
enum CopyError {
    Read,
    Write,
}

impl From<CopyError> for TransferError {
    fn from(_: CopyError) -> Self {
        Self::Interrupted
    }
}

async fn send<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    request: &ForwardRequest,
    from: &mut Buffered<R>,
    to: &mut W,
    counter: Counter<'_>,
) -> Result<(), CopyError> {
    counter.send(&request.upstream_head(), to).await?;
    copy(request.body.clone(), from, to, counter).await
}

async fn pass_back<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    request: &ForwardRequest,
    from: &mut Buffered<R>,
    to: &mut W,
    counter: Counter<'_>,
) -> Result<Transferred, TransferError> {
    for _ in 0..MAX_INTERIM {
        let head = head::read(from, MAX_HEAD).await.and_then(ResponseHead::parse);
        let head = head.map_err(|_| TransferError::NoResponse)?;
        match head.status {
            101 if request.wants_websocket() && head.fields.lists("upgrade", "websocket") => {
                let fields = "connection: Upgrade\r\nupgrade: websocket\r\n";
                counter.send(&client_head(&head, fields), to).await?;
                return Err(TransferError::Upgraded);
            }
            101 => return Err(TransferError::NoResponse),
            100..200 if request.head.version == HttpVersion::Http11 => {
                counter.send(&client_head(&head, ""), to).await?;
            }
            100..200 => {}
            _ => return pass_back_final(request, &head, from, to, counter).await,
        }
    }
    Err(TransferError::NoResponse)
}

async fn pass_back_final<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    request: &ForwardRequest,
    head: &ResponseHead,
    from: &mut Buffered<R>,
    to: &mut W,
    counter: Counter<'_>,
) -> Result<Transferred, TransferError> {
    let body = MessageBody::from_response(head, &request.head.method);
    let body = body.map_err(|_| TransferError::NoResponse)?;
    let is_delimited = body != MessageBody::UntilClose;
    let host_keeps_open = head.version == HttpVersion::Http11 && !head.fields.lists("connection", "close");
    let transferred = Transferred {
        keep_client: is_delimited && request.keeps_open(),
        keep_upstream: is_delimited && host_keeps_open,
    };
    let fields = if transferred.keep_client {
        ""
    } else {
        "connection: close\r\n"
    };
    counter.send(&client_head(head, fields), to).await?;
    copy(body, from, to, counter).await?;
    Ok(transferred)
}

/// The head of a response without the fields of the upstream connection, and with those of the client's.
fn client_head(head: &ResponseHead, fields: &str) -> Vec<u8> {
    let mut bytes = [b"HTTP/1.1 ", head.status_text.as_ref(), b"\r\n"].concat();
    for (name, value) in head.fields.iter() {
        if !NOT_PASSED_BACK
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
        {
            bytes.extend([name, b": ", value, b"\r\n"].concat());
        }
    }
    bytes.extend(fields.as_bytes());
    bytes.extend(b"\r\n");
    bytes
}

/// Copies a body to its end, each piece as soon as it arrives.
async fn copy<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut body: MessageBody,
    from: &mut Buffered<R>,
    to: &mut W,
    counter: Counter<'_>,
) -> Result<(), CopyError> {
    while !body.is_over() {
        if from.buffer.is_empty() {
            match from.fill().await {
                Ok(0) if body == MessageBody::UntilClose => return Ok(()),
                Ok(0) | Err(_) => return Err(CopyError::Read),
                Ok(_) => {}
            }
        }
        let length = body.advance(&from.buffer).map_err(|_| CopyError::Read)?;
        counter.send(&from.buffer[..length], to).await?;
        from.buffer.advance(length);
    }
    Ok(())
}
