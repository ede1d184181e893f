//! The holder: it owns and seals the network namespace of a sandbox, and passes its listeners to ralph.
//!
//! Ralph connects to the holder's socket and sends requests. A response describes the state of the namespace and carries
//! the listeners as open files. The holder keeps none of them: when ralph exits, nothing listens and the sandbox reaches
//! nothing. Only the newest connection is served; an older one is closed, so that its listeners are released.
//!
//! Where ralph runs on another kernel, open files cannot be passed to it. There the holder only keeps the namespace, and
//! `guest relay` in the same container accepts the connections (see `relay`).

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::firewall::{KernelFirewall, PacketAction};
use super::holder_protocol::{self, BOOT_ID, HolderRequest, ListenerTransport, SOCKET};
use super::links;
use super::sys::{self, PollEntry};
use super::sys_net::{self, IpFamily};

/// Exists if the kernel supports IPv6.
const IPV6: &str = "/proc/net/if_inet6";
const MAX_REQUEST: u32 = 64 * 1024;
/// How long an earlier ralph may take to close its listeners.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(3);
const RETRY_PAUSE: Duration = Duration::from_millis(2);
/// How long the boot id can be read.
const BOOT_ID_SHOWN: Duration = Duration::from_secs(60);

/// Serves the ralph that connected last, forever.
pub(crate) fn hold(dir: &Path) -> io::Result<()> {
    let socket = listen(dir)?;
    let mut current: Option<UnixStream> = None;
    loop {
        let mut entries = vec![PollEntry::for_reading(&socket)];
        entries.extend(current.as_ref().map(PollEntry::for_reading));
        sys::poll_files(&mut entries, None)?;
        if entries[0].is_ready() {
            // An earlier ralph sees its connection close, and closes its listeners.
            current = Some(socket.accept()?.0);
            continue;
        }
        let Some(stream) = current.take() else {
            continue;
        };
        match serve(&stream) {
            Ok(true) => current = Some(stream),
            Ok(false) => {}
            // Ralph may connect again.
            Err(error) => eprintln!("guest: {error}"),
        }
    }
}

/// Keeps the namespace and serves no requests, forever.
pub(crate) fn keep() -> ! {
    loop {
        thread::park();
    }
}

/// Prints the id that the kernel drew when it started. Then it waits, so that ralph can read it from the log of a container
/// that removes itself.
pub(crate) fn print_boot_id() -> io::Result<()> {
    println!("{}", fs::read_to_string(BOOT_ID)?.trim());
    thread::sleep(BOOT_ID_SHOWN);
    Ok(())
}

/// Opens the socket. It appears under its name only once any user may connect: ralph may be another user.
fn listen(dir: &Path) -> io::Result<UnixListener> {
    let (path, temporary) = (dir.join(SOCKET), dir.join("making"));
    for stale in [&path, &temporary] {
        match fs::remove_file(stale) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let socket = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(0o666))?;
    fs::rename(&temporary, &path)?;
    Ok(socket)
}

/// Serves one request. Returns whether ralph is still connected.
fn serve(mut stream: &UnixStream) -> io::Result<bool> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > MAX_REQUEST {
        return Err(io::Error::other("request too long"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    let (state, files) = match HolderRequest::parse(&String::from_utf8_lossy(&text)).and_then(handle) {
        Ok((state, files)) => (Ok(state), files),
        Err(error) => (Err(error.to_string()), Vec::new()),
    };
    respond(stream, &holder_protocol::encode_response(state), &files)?;
    Ok(true)
}

/// Handles a request; returns the state of the namespace and the listeners.
pub(crate) fn handle(request: HolderRequest) -> io::Result<(String, Vec<OwnedFd>)> {
    let files = match request {
        HolderRequest::Describe => Vec::new(),
        HolderRequest::Seal => {
            set_firewall()?;
            links::make_all_addresses_local()
                .map_err(|error| with_context("cannot make every address local", &error))?;
            Vec::new()
        }
        HolderRequest::Listen { listeners } => listeners
            .into_iter()
            .map(|(transport, address)| open_listener(transport, address))
            .collect::<io::Result<_>>()?,
    };
    Ok((state()?, files))
}

/// Sets the firewall of each IP family that has none yet.
fn set_firewall() -> io::Result<()> {
    for family in families() {
        let failed =
            |error: io::Error| with_context(&format!("cannot set the firewall ({family:?})"), &error);
        if KernelFirewall::read(family).map_err(failed)?.is_untouched() {
            KernelFirewall::apply(PacketAction::Drop, family).map_err(failed)?;
        }
    }
    Ok(())
}

/// The state of the namespace, as the kernel reports it.
fn state() -> io::Result<String> {
    let mut state = links::describe()?;
    for family in families() {
        let name = match family {
            IpFamily::V4 => "ipv4",
            IpFamily::V6 => "ipv6",
        };
        state += name;
        state += "\n";
        state += &KernelFirewall::read(family)?.to_string();
    }
    Ok(state)
}

/// The IP families that this kernel supports.
fn families() -> impl Iterator<Item = IpFamily> {
    let v6 = Path::new(IPV6).exists().then_some(IpFamily::V6);
    std::iter::once(IpFamily::V4).chain(v6)
}

/// Opens a listener. Retries while the listener of an earlier ralph is still open.
fn open_listener(transport: ListenerTransport, address: SocketAddr) -> io::Result<OwnedFd> {
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    loop {
        let opened = match transport {
            ListenerTransport::Tcp => TcpListener::bind(address).map(OwnedFd::from),
            ListenerTransport::Udp => UdpSocket::bind(address).map(OwnedFd::from),
        };
        match opened {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(RETRY_PAUSE);
            }
            Err(error) => return Err(with_context(&format!("cannot listen at {address}"), &error)),
            opened => return opened,
        }
    }
}

fn with_context(what: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{what}: {error}"))
}

/// Sends the response; the files go with its first byte.
fn respond(mut stream: &UnixStream, text: &str, files: &[OwnedFd]) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let bytes = [&length.to_le_bytes(), text.as_bytes()].concat();
    let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let sent = sys_net::send_with_files(stream, &bytes, &files)?;
    stream.write_all(&bytes[sent..])
}
