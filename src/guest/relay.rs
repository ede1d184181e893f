//! The relay of a sealed network: accepts the connections of the sandbox, and carries them to ralph over standard input and
//! output. It decides nothing: ralph is the gateway.
//!
//! It runs in the container of the holder, where the sandbox sees no process. When its standard input ends it exits, and
//! its listeners and connections with it. The first request to a new relay ends an older one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::connection::HostConnection;
use super::holder;
use super::holder_protocol::{self, HolderRequest, ListenerTransport};
use super::message::VERSION;
use super::relay_protocol::{Datagram, FullWindows, MAX_CONNECTIONS, MAX_UNSENT, PIECE, RelayFrame};
use super::relayed_socket::{RelayedSocket, is_temporary};
use super::sys::{self, PollEntry};
use super::sys_net;
use super::write_queue::WriteQueue;

/// The longest datagram, as in the gateway.
const MAX_DATAGRAM: usize = 4096;
/// How many datagrams or connections of one listener are taken before the others get their turn.
const BATCH: usize = 64;
/// The size of each buffer of a connection in the kernel, which doubles it for its own needs. By default it grows to
/// megabytes.
const SOCKET_BUFFER: i32 = 64 * 1024;
/// What the pipes from and to ralph may hold. By default that is a single piece of data, so that each end waits for the other.
const PIPE: i32 = 1024 * 1024;
/// How many bytes are read from ralph at a time.
const READ_SIZE: usize = 4 * PIECE;
/// Delay after a failed accept, for example because too many files are open.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// The command line of the first process of a holder's container, as the kernel shows it.
const HOLDER_COMMAND: &[u8] = b"/.ralph/guest\0hold\0";

/// Relays connections until ralph disconnects. Its first request ends a relay that runs already.
pub(crate) fn relay() -> io::Result<()> {
    sys::deny_inspection()?;
    let others = OtherRelays::beside_holder()?;
    sys::raise_open_files_limit()?;
    Relay::open(HostConnection::open(None)?, others)?.run()
}

/// The right to kill all other processes. It exists only in a container whose first process is a holder: there the others
/// are relays. Elsewhere they could be the processes of the host.
#[derive(Debug)]
struct OtherRelays(());

impl OtherRelays {
    fn beside_holder() -> io::Result<Self> {
        let first = fs::read("/proc/1/cmdline")?;
        if first == HOLDER_COMMAND {
            return Ok(Self(()));
        }
        let first = String::from_utf8_lossy(&first).replace('\0', " ");
        let reason = format!(
            "a relay runs only beside a holder, but the first process here is {:?}",
            first.trim_end()
        );
        Err(io::Error::other(reason))
    }

    fn kill(self) {
        let Self(()) = self;
        sys::kill_all_others();
    }
}

#[derive(Debug)]
struct Relay {
    ralph: File,
    /// Until the first request: a relay whose ralph is gone already ends nothing.
    others: Option<OtherRelays>,
    decoder: super::frame::FrameDecoder,
    outbox: WriteQueue,
    listeners: Vec<RelayListener>,
    /// No connection is accepted before this time.
    accepts_after: Option<Instant>,
    sockets: BTreeMap<u32, RelayedSocket>,
    last_id: u32,
    /// The connection whose turn to be read is next.
    next_turn: u32,
    full_windows: FullWindows,
    chunk: Vec<u8>,
}

#[derive(Debug)]
enum RelayListener {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

/// What an entry of `poll` belongs to.
#[derive(Clone, Copy, Debug)]
enum Source {
    Ralph,
    Outbox,
    Listener(usize),
    Socket(u32),
}

impl Relay {
    /// Starts by sending the version.
    fn open(connection: HostConnection, others: OtherRelays) -> io::Result<Self> {
        sys::enlarge_pipe(&connection.from_ralph, PIPE);
        sys::enlarge_pipe(&connection.to_ralph, PIPE);
        let mut relay = Self {
            ralph: connection.from_ralph,
            others: Some(others),
            decoder: RelayFrame::decoder(),
            outbox: WriteQueue::new(connection.to_ralph)?,
            listeners: Vec::new(),
            accepts_after: None,
            sockets: BTreeMap::new(),
            last_id: 0,
            next_turn: 0,
            full_windows: FullWindows::default(),
            chunk: vec![0; READ_SIZE],
        };
        relay.send(0, RelayFrame::Hello(VERSION))?;
        Ok(relay)
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            self.outbox.flush()?;
            self.drop_overdue();
            for source in self.wait()? {
                match source {
                    Source::Ralph => {
                        if self.read_frames()?.is_break() {
                            return Ok(());
                        }
                    }
                    // The next turn begins with sending.
                    Source::Outbox => {}
                    Source::Listener(index) => self.serve_listener(index)?,
                    Source::Socket(id) => self.serve_socket(id)?,
                }
            }
        }
    }

    fn send(&mut self, id: u32, frame: RelayFrame<'_>) -> io::Result<()> {
        frame
            .append_to(id, &mut self.outbox.bytes)
            .map_err(io::Error::other)
    }

    /// Whether ralph does not read at the moment.
    fn is_backed_up(&self) -> bool {
        self.outbox.len() > MAX_UNSENT
    }

    /// Waits until something is ready or a deadline has passed; returns what is ready.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let (sources, mut entries): (Vec<Source>, Vec<PollEntry>) = self.poll_entries().into_iter().unzip();
        let deadlines = self.sockets.values().filter_map(RelayedSocket::closes_by);
        let deadline = deadlines.chain(self.accepts_after).min();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        sys::poll_files(&mut entries, timeout)?;
        let ready = sources
            .into_iter()
            .zip(entries)
            .filter(|(_, entry)| entry.is_ready());
        Ok(ready.map(|(source, _)| source).collect())
    }

    /// Ralph comes first: what it sends makes room. Sockets take turns, so that a busy one does not keep others waiting.
    fn poll_entries(&self) -> Vec<(Source, PollEntry)> {
        let mut entries = vec![(Source::Ralph, PollEntry::for_reading(&self.ralph))];
        if self.outbox.len() > 0 {
            entries.push((Source::Outbox, PollEntry::for_writing(&self.outbox.stream)));
        }
        let backed_up = self.is_backed_up();
        for (index, listener) in self.listeners.iter().enumerate() {
            if !backed_up && self.may_take_from(listener) {
                entries.push((Source::Listener(index), PollEntry::for_reading(listener)));
            }
        }
        let later = self.sockets.range(self.next_turn..);
        for (id, socket) in later.chain(self.sockets.range(..self.next_turn)) {
            let entry = match (socket.wants_to_read() && !backed_up, socket.wants_to_write()) {
                (true, true) => PollEntry::for_both(socket.socket()),
                (true, false) => PollEntry::for_reading(socket.socket()),
                (false, true) => PollEntry::for_writing(socket.socket()),
                (false, false) => continue,
            };
            entries.push((Source::Socket(*id), entry));
        }
        entries
    }

    fn may_take_from(&self, listener: &RelayListener) -> bool {
        match listener {
            RelayListener::Udp(_) => true,
            RelayListener::Tcp(_) => self.accepts_after.is_none() && self.sockets.len() < MAX_CONNECTIONS,
        }
    }

    /// Drops connections that ralph closed and whose clients do not read what is left.
    fn drop_overdue(&mut self) {
        let now = Instant::now();
        self.accepts_after = self.accepts_after.filter(|time| *time > now);
        let overdue = |socket: &RelayedSocket| socket.closes_by().is_some_and(|time| time <= now);
        let ids = self.sockets.iter().filter(|(_, socket)| overdue(socket));
        for id in ids.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u32) {
        if let Some(socket) = self.sockets.remove(&id) {
            socket.release(&mut self.full_windows);
        }
    }

    /// Breaks off at the end of the input.
    fn read_frames(&mut self) -> io::Result<ControlFlow<()>> {
        match self.ralph.read(&mut self.chunk) {
            Err(error) if is_temporary(&error) => return Ok(ControlFlow::Continue(())),
            Ok(0) | Err(_) => return Ok(ControlFlow::Break(())),
            Ok(read) => self.decoder.buffer().extend_from_slice(&self.chunk[..read]),
        }
        let mut decoder = mem::replace(&mut self.decoder, RelayFrame::decoder());
        while let Some(frame) = decoder.next().map_err(io::Error::other)? {
            let id = frame.id;
            self.handle(id, RelayFrame::decode(frame).map_err(io::Error::other)?)?;
        }
        self.decoder = decoder;
        Ok(ControlFlow::Continue(()))
    }

    fn handle(&mut self, id: u32, frame: RelayFrame<'_>) -> io::Result<()> {
        match frame {
            RelayFrame::Control(text) => return self.respond(text),
            RelayFrame::Datagram(datagram) => {
                self.send_datagram(id, datagram);
                return Ok(());
            }
            RelayFrame::Hello(_) | RelayFrame::Opened { .. } => return Err(broken_rule()),
            _ => {}
        }
        let Some(socket) = self.sockets.get_mut(&id) else {
            // The connection ended while the frame was in flight.
            return if id <= self.last_id {
                Ok(())
            } else {
                Err(broken_rule())
            };
        };
        match frame {
            RelayFrame::Data(bytes) => {
                socket.receive(bytes.len()).ok_or_else(broken_rule)?;
                return self.write(id, bytes);
            }
            RelayFrame::Credit(bytes) => return socket.credit.add(bytes).ok_or_else(broken_rule),
            RelayFrame::End if socket.end_writes().is_err() => return self.break_off(id),
            RelayFrame::End => {}
            RelayFrame::Close => socket.close(),
            _ => {
                socket.reset();
                self.remove(id);
            }
        }
        self.settle(id);
        Ok(())
    }

    /// Answers a request of the holder protocol.
    fn respond(&mut self, text: &[u8]) -> io::Result<()> {
        if let Some(others) = self.others.take() {
            others.kill();
        }
        let response =
            HolderRequest::parse(&String::from_utf8_lossy(text)).and_then(|request| self.obey(request));
        let response = holder_protocol::encode_response(response.map_err(|error| error.to_string()));
        self.send(0, RelayFrame::Control(response.as_bytes()))
    }

    fn obey(&mut self, request: HolderRequest) -> io::Result<String> {
        let transports = match &request {
            HolderRequest::Listen { .. } if !self.listeners.is_empty() => {
                return Err(io::Error::other("the relay listens already"));
            }
            HolderRequest::Listen { listeners } => {
                listeners.iter().map(|(transport, _)| *transport).collect()
            }
            HolderRequest::Seal | HolderRequest::Describe => Vec::new(),
        };
        let (state, files) = holder::handle(request)?;
        let opened = transports.into_iter().zip(files);
        let opened: Vec<RelayListener> = opened
            .map(|(transport, file)| RelayListener::new(transport, file))
            .collect::<io::Result<_>>()?;
        self.listeners.extend(opened);
        Ok(state)
    }

    fn serve_listener(&mut self, index: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(listener) = self.listeners.get(index) else {
                break;
            };
            if self.is_backed_up() || !self.may_take_from(listener) {
                break;
            }
            match listener {
                RelayListener::Udp(socket) => {
                    match sys_net::receive_datagram(socket, &mut self.chunk[..MAX_DATAGRAM]) {
                        Ok((length, client, server)) => {
                            let bytes = &self.chunk[..length];
                            let datagram = Datagram {
                                client,
                                server,
                                bytes,
                            };
                            let id = u32::try_from(index).map_err(io::Error::other)?;
                            RelayFrame::Datagram(datagram)
                                .append_to(id, &mut self.outbox.bytes)
                                .map_err(io::Error::other)?;
                        }
                        // An ICMP error of an earlier answer is reported here too.
                        Err(_) => break,
                    }
                }
                RelayListener::Tcp(socket) => match accept(socket) {
                    Ok((socket, destination)) => self.open_connection(index, socket, destination)?,
                    Err(error) if is_temporary(&error) => break,
                    Err(_) => {
                        self.accepts_after = Some(Instant::now() + ACCEPT_RETRY);
                        break;
                    }
                },
            }
        }
        Ok(())
    }

    fn open_connection(
        &mut self,
        index: usize,
        socket: RelayedSocket,
        destination: SocketAddr,
    ) -> io::Result<()> {
        let SocketAddr::V4(destination) = destination else {
            return Err(io::Error::other("a connection to an IPv6 address"));
        };
        let listener = u16::try_from(index).map_err(io::Error::other)?;
        let next = self.last_id.checked_add(1);
        let id = next.ok_or_else(|| io::Error::other("the relay has no numbers for connections left"))?;
        self.last_id = id;
        self.sockets.insert(id, socket);
        self.send(
            id,
            RelayFrame::Opened {
                listener,
                destination,
            },
        )
    }

    fn send_datagram(&self, id: u32, datagram: Datagram<'_>) {
        let Datagram {
            client,
            server,
            bytes,
        } = datagram;
        if let Some(RelayListener::Udp(socket)) = self.listeners.get(id as usize) {
            // When the send buffer is full, the client repeats its query.
            let _ = sys_net::send_datagram(socket, bytes, client, server);
        }
    }

    fn serve_socket(&mut self, id: u32) -> io::Result<()> {
        if self.sockets.get(&id).is_some_and(RelayedSocket::wants_to_write) {
            self.write(id, &[])?;
        }
        if self.is_backed_up() {
            return Ok(());
        }
        let Some(socket) = self.sockets.get_mut(&id).filter(|socket| socket.wants_to_read()) else {
            return Ok(());
        };
        self.next_turn = id.wrapping_add(1);
        let read = match socket.read(&mut self.chunk[..PIECE]) {
            Ok(None) => return Ok(()),
            Ok(Some(0)) => RelayFrame::End.append_to(id, &mut self.outbox.bytes),
            Ok(Some(count)) => RelayFrame::Data(&self.chunk[..count]).append_to(id, &mut self.outbox.bytes),
            Err(_) => return self.break_off(id),
        };
        read.map_err(io::Error::other)?;
        self.settle(id);
        Ok(())
    }

    fn write(&mut self, id: u32, bytes: &[u8]) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return Ok(());
        };
        let Ok(credit) = socket.write(bytes, &mut self.full_windows) else {
            return self.break_off(id);
        };
        if let Some(credit) = credit {
            self.send(id, RelayFrame::Credit(credit))?;
        }
        self.settle(id);
        Ok(())
    }

    /// Removes a connection that is over.
    fn settle(&mut self, id: u32) {
        if self.sockets.get(&id).is_some_and(RelayedSocket::is_over) {
            self.remove(id);
        }
    }

    /// Removes a connection that failed.
    fn break_off(&mut self, id: u32) -> io::Result<()> {
        // Ralph does not know a connection any more that it closed.
        let is_known = self
            .sockets
            .get(&id)
            .is_some_and(|socket| socket.closes_by().is_none());
        self.remove(id);
        if is_known {
            self.send(id, RelayFrame::Reset)?;
        }
        Ok(())
    }
}

impl RelayListener {
    fn new(transport: ListenerTransport, file: OwnedFd) -> io::Result<Self> {
        Ok(match transport {
            ListenerTransport::Tcp => {
                let listener = TcpListener::from(file);
                listener.set_nonblocking(true)?;
                // Accepted connections have the same.
                sys_net::limit_socket_buffers(&listener, SOCKET_BUFFER)?;
                Self::Tcp(listener)
            }
            ListenerTransport::Udp => {
                let socket = UdpSocket::from(file);
                socket.set_nonblocking(true)?;
                sys_net::enable_packet_info(&socket)?;
                Self::Udp(socket)
            }
        })
    }
}

impl AsFd for RelayListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Accepts a connection; also returns the address that the sandbox connected to.
fn accept(listener: &TcpListener) -> io::Result<(RelayedSocket, SocketAddr)> {
    let (socket, _): (TcpStream, SocketAddr) = listener.accept()?;
    let destination = socket.local_addr()?;
    Ok((RelayedSocket::new(socket)?, destination))
}

fn broken_rule() -> io::Error {
    io::Error::other("ralph broke a rule of the relay protocol")
}
