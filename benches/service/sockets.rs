//! 1,000 WebSockets on a run with 50 events a second, beside a plain axum server that sends as many messages; and clients
//! that read nothing.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::ws::{Message as AxumMessage, Utf8Bytes, WebSocketUpgrade};
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use support::ralph::{script, whole_task};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::Fallible;
use super::figure::{Figure, MEDIAN, P99, PeerSamples, Samples, Target, quick};
use super::many_runs::{LOG_BYTES, ManyRuns, RUNS, processor_time};

const CLIENTS: usize = 1_000;
const EVENTS: u64 = 500;
const INTERVAL: Duration = Duration::from_millis(20);
/// Clients that read nothing, and what is written meanwhile.
const STALLED: usize = 50;
const UNREAD: usize = 8 * 1024 * 1024;
/// Runs with and without watchers.
const TIMED_RUNS: usize = 5;

/// The argument with which this program is the plain server.
pub(crate) const PLAIN: &str = "plain-server";

type Socket = WebSocketStream<TcpStream>;

pub(crate) async fn measure(service: &ManyRuns) -> Fallible<Vec<Figure>> {
    let stalled = stalled(service).await?;
    let mut sockets = connect_all(&service.address, Some(service)).await?;
    let (ours, used) = (fan_out(service, &mut sockets).await?, service.processor_time()?);
    println!("sockets, ms: {ours}, {CLIENTS} clients; processor time of the service {used:?}");
    let resident = megabytes(service.resident()?);
    println!("resident: {resident:.1} MB with {RUNS} runs, {LOG_BYTES} bytes of logs and {CLIENTS} sockets");
    let slowed = slowed(service, sockets).await?;
    let peer = plain().await?;
    println!("plain axum server, ms: {peer}");
    let figure = |name, unit, ours, most| Figure {
        name,
        unit,
        at: MEDIAN,
        ours,
        peer: None,
        target: Target::Most(most),
    };
    let fan_out = Figure {
        at: P99,
        peer: Some(PeerSamples::new("a plain axum server", &peer)),
        ..figure("sockets-1000-p99", "ms", ours, 100.0)
    };
    Ok(vec![
        fan_out,
        figure("run-slowed-by-sockets", "%", slowed, 5.0),
        figure("stalled-client", "KB", Samples::one(stalled), 256.0),
        figure("resident", "MB", Samples::one(resident), 150.0),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1_000_000.0
}

/// How much memory of the service a client holds that reads nothing, in kilobytes.
async fn stalled(service: &ManyRuns) -> Fallible<f64> {
    let before = service.resident()?;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push(connect(&service.address, Some(service)).await?);
    }
    let mut log = OpenOptions::new().append(true).open(service.log())?;
    let line = json!({"event": "output", "text": "x".repeat(1000)}).to_string() + "\n";
    for _ in 0..UNREAD / line.len() {
        log.write_all(line.as_bytes())?;
    }
    // Until the buffers of the system are full.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = service.resident()?;
    drop(stalled);
    let each = after.saturating_sub(before) / STALLED as u64;
    Ok(megabytes(each) * 1000.0)
}

/// Connects all clients. Those of the service subscribe to the longest run.
async fn connect_all(address: &str, service: Option<&ManyRuns>) -> Fallible<Vec<Socket>> {
    let mut sockets = Vec::new();
    for _ in 0..CLIENTS {
        sockets.push(connect(address, service).await?);
    }
    Ok(sockets)
}

async fn connect(address: &str, service: Option<&ManyRuns>) -> Fallible<Socket> {
    let mut request = format!("ws://{address}/api/events").into_client_request()?;
    if let Some(service) = service {
        let token = format!("Bearer {}", service.token);
        request.headers_mut().insert("authorization", token.parse()?);
    }
    let stream = TcpStream::connect(address).await?;
    let (mut socket, _) = client_async(request, stream).await?;
    if let Some(service) = service {
        let subscribe = json!({"subscribe": service.longest}).to_string();
        socket.send(Message::text(subscribe)).await?;
        while !next_text(&mut socket).await?.contains("subscribed") {}
    }
    Ok(socket)
}

async fn next_text(socket: &mut Socket) -> Fallible<String> {
    loop {
        match socket.next().await.ok_or("the connection ended")?? {
            Message::Text(text) => return Ok(text.to_string()),
            Message::Ping(_) | Message::Pong(_) => {}
            other => return Err(format!("{other:?}").into()),
        }
    }
}

/// Writes events to the log of the run as its runner does, and measures when each client has each of them.
async fn fan_out(service: &ManyRuns, sockets: &mut Vec<Socket>) -> Fallible<Samples> {
    let clients = receive(std::mem::take(sockets));
    let mut log = OpenOptions::new().append(true).open(service.log())?;
    for number in 0..EVENTS {
        tokio::time::sleep(INTERVAL).await;
        writeln!(log, "{}", message(number)?)?;
    }
    let (times, kept) = collect(clients).await?;
    *sockets = kept;
    Ok(times)
}

fn message(number: u64) -> Fallible<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
    Ok(format!(
        "{{\"event\":\"output\",\"number\":{number},\"at\":{now}}}"
    ))
}

type Received = JoinSet<Fallible<(Vec<f64>, Socket)>>;

fn receive(sockets: Vec<Socket>) -> Received {
    let mut clients = JoinSet::new();
    for mut socket in sockets {
        clients.spawn(async move {
            let mut times = Vec::new();
            while times.len() < usize::try_from(EVENTS)? {
                let text = next_text(&mut socket).await?;
                let expected = format!("\"number\":{},", times.len());
                let (_, at) = text.split_once("\"at\":").ok_or("another message")?;
                if !text.contains(&expected) {
                    return Err(format!("an event is missing or came twice: {text}").into());
                }
                let at: String = at.chars().take_while(char::is_ascii_digit).collect();
                let sent = UNIX_EPOCH + Duration::from_micros(at.parse()?);
                times.push(sent.elapsed().unwrap_or_default().as_secs_f64() * 1000.0);
            }
            Ok((times, socket))
        });
    }
    clients
}

async fn collect(mut clients: Received) -> Fallible<(Samples, Vec<Socket>)> {
    let before = processor_time("/proc/self/stat")?;
    let (mut all, mut sockets) = (Vec::new(), Vec::new());
    while let Some(client) = clients.join_next().await {
        let (times, socket) = client??;
        all.extend(times);
        sockets.push(socket);
    }
    println!(
        "processor time of the clients: {:?}",
        processor_time("/proc/self/stat")?.saturating_sub(before)
    );
    Ok((all.into_iter().collect(), sockets))
}

/// By how many percent a run takes longer while the clients watch all runs and this one's list changes.
async fn slowed(service: &ManyRuns, mut sockets: Vec<Socket>) -> Fallible<Samples> {
    for socket in &mut sockets {
        socket
            .send(Message::text(json!({"subscribe": "runs"}).to_string()))
            .await?;
    }
    let mut readers = JoinSet::new();
    for mut socket in sockets {
        readers.spawn(async move { while next_text(&mut socket).await.is_ok() {} });
    }
    let watched = run_times(service).await?;
    readers.shutdown().await;
    let alone = run_times(service).await?;
    println!("a whole run, ms: watched {watched}; alone {alone}");
    Ok(watched.map(|one| (one / alone.median() - 1.0) * 100.0))
}

async fn run_times(service: &ManyRuns) -> Fallible<Samples> {
    let mut times = Vec::new();
    for _ in 0..quick::rounds(TIMED_RUNS) {
        let mut command = service.place.scripted(&script([whole_task()]), &[]);
        let began = Instant::now();
        let ended = tokio::task::spawn_blocking(move || command.output()).await??;
        if !ended.status.success() {
            return Err(String::from_utf8_lossy(&ended.stderr).into());
        }
        times.push(began.elapsed());
    }
    Ok(Samples::milliseconds(times))
}

/// As many clients on a plain server in another process, which sends each message to all of them.
async fn plain() -> Fallible<Samples> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    let mut child = command
        .arg(PLAIN)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = tokio::io::BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut address = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut address).await?;
    let sockets = connect_all(address.trim(), None).await?;
    Ok(collect(receive(sockets)).await?.0)
}

/// The plain server: begins to send when all clients are there.
pub(crate) async fn serve_plain() -> Fallible<()> {
    let news = broadcast::Sender::<Utf8Bytes>::new(1024);
    let sender = news.clone();
    tokio::spawn(async move {
        while news.receiver_count() < CLIENTS {
            tokio::time::sleep(INTERVAL).await;
        }
        for number in 0..EVENTS {
            tokio::time::sleep(INTERVAL).await;
            let Ok(text) = message(number) else { return };
            let _ = news.send(text.into());
        }
    });
    let connect = move |upgrade: WebSocketUpgrade| {
        let mut messages = sender.subscribe();
        async move {
            upgrade.on_upgrade(move |mut socket| async move {
                while let Ok(text) = messages.recv().await {
                    if socket.send(AxumMessage::Text(text)).await.is_err() {
                        return;
                    }
                }
            })
        }
    };
    let router = axum::Router::new().route("/api/events", axum::routing::get(connect));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}
