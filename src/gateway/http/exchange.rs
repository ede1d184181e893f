//! One request passed on, and its answer passed back, byte for byte as they come.

use std::io;
use std::pin::pin;
use std::sync::atomic::AtomicU64;

use bytes::Buf;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::answer::Answer;
use super::ask::Ask;
use super::body::Body;
use super::head::{ResponseHead, Version, end_of_head};
use crate::gateway::core::{Core, Session};
use crate::gateway::dial::DialError;
use crate::gateway::permit::Permit;
use crate::gateway::relay::{count, relay};
use crate::gateway::seats::Seat;
use crate::gateway::stream::{Buffered, ByteStream, Client};
use crate::network::RequestHost;

/// The longest head of a response.
const LONGEST_HEAD: usize = 256 * 1024;
/// The most interim responses before the one that counts.
const MOST_INTERIM: usize = 16;
/// Fields of a response that concern one connection only.
const NOT_PASSED_BACK: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "upgrade",
];

/// A connection to where requests are passed on to.
pub(in crate::gateway) struct Upstream {
    host: RequestHost,
    port: u16,
    stream: Buffered<Box<dyn ByteStream>>,
}

/// What became of the client's connection.
pub(super) enum Ended {
    /// It can carry another request.
    Open,
    /// It cannot, and nothing more can be said.
    Broken,
    /// Nothing was answered yet; this can be.
    Unanswered(Answer),
}

/// Passes a request on and its answer back. `kept` is the connection that the last request left open.
pub(super) async fn exchange<C: Client>(
    session: &mut Session<'_, C>,
    ask: Ask,
    kept: &mut Option<Upstream>,
    permit: &Permit,
) -> io::Result<Ended> {
    let mut reused = kept.take().filter(|upstream| upstream.suits(&ask));
    // A host may close a connection at any time; then the request is sent once more, where that does no harm.
    let tries = if reused.is_some() && ask.can_be_repeated() {
        2
    } else {
        1
    };
    let mut transferred = Err(Failure::NoAnswer);
    for _ in 0..tries {
        let mut upstream = match reused.take().and_then(Upstream::if_silent) {
            Some(upstream) => upstream,
            None => match Upstream::open(session.core, &ask, permit).await {
                Ok(upstream) => upstream,
                Err(answer) => return Ok(Ended::Unanswered(answer)),
            },
        };
        transferred = transfer(session, &ask, &mut upstream, permit).await;
        match &transferred {
            Err(Failure::NoAnswer) => {}
            Err(Failure::Upgraded) => {
                relay(&mut session.client, &mut upstream.stream, permit, session.seat).await?;
                return Ok(Ended::Broken);
            }
            Err(Failure::Broken) => return Ok(Ended::Broken),
            Ok(finished) => {
                *kept = (finished.upstream == Fate::Open).then_some(upstream);
                break;
            }
        }
    }
    Ok(match transferred {
        Ok(Finished {
            client: Fate::Open, ..
        }) => Ended::Open,
        Ok(_) => {
            // Within TLS the client must be told that this is the end, and not where it broke.
            let _ = session.client.stream.shutdown().await;
            Ended::Broken
        }
        Err(Failure::NoAnswer) => Ended::Unanswered(Answer::unreachable("the host gave no answer")),
        Err(Failure::Broken | Failure::Upgraded) => Ended::Broken,
    })
}

impl Upstream {
    async fn open(core: &Core, ask: &Ask, permit: &Permit) -> Result<Self, Answer> {
        match core.open(permit, ask.onward()).await {
            Ok(stream) => Ok(Self {
                host: ask.host.clone(),
                port: ask.port(),
                stream: Buffered::new(stream),
            }),
            Err(DialError::Denied(denial)) => Err(Answer::denied(&denial, Some(&ask.host))),
            Err(error) => Err(Answer::unreachable(&error.to_string())),
        }
    }

    fn suits(&self, ask: &Ask) -> bool {
        ask.goes_to(&self.host, self.port)
    }

    /// Itself, unless it was closed meanwhile or says something unasked.
    fn if_silent(mut self) -> Option<Self> {
        let said = !self.stream.buffer.is_empty() || self.stream.fill().now_or_never().is_some();
        (!said).then_some(self)
    }
}

/// What became of both connections after an answer.
struct Finished {
    client: Fate,
    upstream: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Closed,
}

/// Why there is no answer to go on from.
enum Failure {
    /// Nothing was passed back: the host did not answer, or with something that is no HTTP.
    NoAnswer,
    /// Something was passed back, and then it broke.
    Broken,
    /// It is a WebSocket now.
    Upgraded,
}

/// Sends the request while the answer is awaited: a host may answer before it has heard everything.
async fn transfer<C: Client>(
    session: &mut Session<'_, C>,
    ask: &Ask,
    upstream: &mut Upstream,
    permit: &Permit,
) -> Result<Finished, Failure> {
    let Session { client, seat, .. } = session;
    let (client_read, mut client_write) = tokio::io::split(&mut client.stream);
    let mut from_client = Buffered::with_buffer(client_read, std::mem::take(&mut client.buffer));
    let (upstream_read, mut upstream_write) = tokio::io::split(&mut upstream.stream.stream);
    let mut from_upstream = Buffered::with_buffer(upstream_read, std::mem::take(&mut upstream.stream.buffer));
    let sent = Count(&permit.traffic.sent, seat);
    let received = Count(&permit.traffic.received, seat);
    let (answered, request) = {
        let mut sending = pin!(send(ask, &mut from_client, &mut upstream_write, sent));
        let mut answering = pin!(pass_back(ask, &mut from_upstream, &mut client_write, received));
        tokio::select! {
            biased;
            sent = &mut sending => match sent {
                Ok(()) => (answering.await, Fate::Open),
                // The host may have said no and hung up; that is to be heard.
                Err(Side::To) => (answering.await, Fate::Closed),
                Err(Side::From) => (Err(Failure::Broken), Fate::Closed),
            },
            answered = &mut answering => (answered, Fate::Closed),
        }
    };
    client.buffer = from_client.buffer;
    upstream.stream.buffer = from_upstream.buffer;
    match request {
        Fate::Open => answered,
        // The rest of the request is still on its way: neither connection is at a beginning.
        Fate::Closed => answered.map(|_| Finished {
            client: Fate::Closed,
            upstream: Fate::Closed,
        }),
    }
}

/// Counts bytes and keeps the seat.
#[derive(Clone, Copy)]
struct Count<'a>(&'a AtomicU64, &'a Seat);

impl Count<'_> {
    fn add(self, bytes: usize) {
        count(self.0, bytes);
        self.1.touch();
    }
}

/// Which side broke while something was carried.
enum Side {
    From,
    To,
}

async fn send<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    ask: &Ask,
    from: &mut Buffered<R>,
    to: &mut W,
    counted: Count<'_>,
) -> Result<(), Side> {
    let head = ask.head_to_pass_on();
    to.write_all(&head).await.map_err(|_| Side::To)?;
    // TLS keeps back what is not asked for, and so below.
    to.flush().await.map_err(|_| Side::To)?;
    counted.add(head.len());
    carry(ask.body(), from, to, counted).await
}

async fn pass_back<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    ask: &Ask,
    from: &mut Buffered<R>,
    to: &mut W,
    counted: Count<'_>,
) -> Result<Finished, Failure> {
    for _ in 0..MOST_INTERIM {
        let head = read_response(from).await.ok_or(Failure::NoAnswer)?;
        match head.status {
            101 if ask.wants_websocket() && head.fields.lists("upgrade", "websocket") => {
                let own = "connection: Upgrade\r\nupgrade: websocket\r\n";
                write_head(&head, own, to, counted).await?;
                return Err(Failure::Upgraded);
            }
            101 => return Err(Failure::NoAnswer),
            100..200 if ask.version() == Version::Http11 => write_head(&head, "", to, counted).await?,
            100..200 => {}
            _ => return pass_back_final(ask, &head, (from, to), counted).await,
        }
    }
    Err(Failure::NoAnswer)
}

async fn pass_back_final<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    ask: &Ask,
    head: &ResponseHead,
    (from, to): (&mut Buffered<R>, &mut W),
    counted: Count<'_>,
) -> Result<Finished, Failure> {
    let body = Body::of_response(head, ask.method()).map_err(|_| Failure::NoAnswer)?;
    let ends_with_the_connection = body == Body::UntilTheEnd;
    let fate = |stays: bool| if stays { Fate::Open } else { Fate::Closed };
    let host_stays = head.version == Version::Http11 && !head.fields.lists("connection", "close");
    let finished = Finished {
        client: fate(ask.keeps_open() && !ends_with_the_connection),
        upstream: fate(host_stays && !ends_with_the_connection),
    };
    let own = match finished.client {
        Fate::Open => "",
        Fate::Closed => "connection: close\r\n",
    };
    write_head(head, own, to, counted).await?;
    carry(body, from, to, counted)
        .await
        .map_err(|_| Failure::Broken)?;
    Ok(finished)
}

/// The head of a response; `None` when there is none that can be read.
async fn read_response<R: AsyncRead + Unpin>(from: &mut Buffered<R>) -> Option<ResponseHead> {
    let mut seen = 0;
    loop {
        if let Some(end) = end_of_head(&from.buffer, seen).ok()? {
            return ResponseHead::parse(from.buffer.split_to(end).freeze()).ok();
        }
        seen = from.buffer.len();
        if seen > LONGEST_HEAD {
            return None;
        }
        from.fill_some().await.ok()?;
    }
}

/// Writes a response's head without the fields that concern the other connection, and with these of this one.
async fn write_head<W: AsyncWrite + Unpin>(
    head: &ResponseHead,
    own_fields: &str,
    to: &mut W,
    counted: Count<'_>,
) -> Result<(), Failure> {
    let mut bytes = [b"HTTP/1.1 ", head.status_text.as_ref(), b"\r\n"].concat();
    for (name, value) in head.fields.iter() {
        if !NOT_PASSED_BACK
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
        {
            bytes.extend([name, b": ", value, b"\r\n"].concat());
        }
    }
    bytes.extend(own_fields.as_bytes());
    bytes.extend(b"\r\n");
    to.write_all(&bytes).await.map_err(|_| Failure::Broken)?;
    to.flush().await.map_err(|_| Failure::Broken)?;
    counted.add(bytes.len());
    Ok(())
}

/// Carries a body to its end, each piece as soon as it is there.
async fn carry<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut body: Body,
    from: &mut Buffered<R>,
    to: &mut W,
    counted: Count<'_>,
) -> Result<(), Side> {
    while !body.is_over() {
        if from.buffer.is_empty() {
            match from.fill().await {
                Ok(0) if body == Body::UntilTheEnd => return Ok(()),
                Ok(0) | Err(_) => return Err(Side::From),
                Ok(_) => {}
            }
        }
        let length = body.advance(&from.buffer).map_err(|_| Side::From)?;
        to.write_all(&from.buffer[..length]).await.map_err(|_| Side::To)?;
        to.flush().await.map_err(|_| Side::To)?;
        from.buffer.advance(length);
        counted.add(length);
    }
    Ok(())
}
