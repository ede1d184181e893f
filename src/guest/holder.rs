//! The holder: it seals a network namespace, in which a sandbox lives, and hands its listeners to ralph.
//!
//! Ralph connects to its socket and sends an order; what comes back is what is in force, with the listeners as open
//! files. Nothing of them is kept here: when ralph ends, nobody listens, and the sandbox is closed. Whoever connects next
//! gets new ones, and whoever had the old ones is let go of.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::firewall::{Family, Firewall};
use super::links;
use super::order::{Order, Outcome, SOCKET, Transport};
use super::sys::{self, Watched};
use super::sys_net;

/// Where the kernel says that it knows IPv6.
const IPV6: &str = "/proc/net/if_inet6";
/// The longest order.
const LONGEST: u32 = 64 * 1024;
/// How long an earlier ralph may take to stop listening.
const GRACE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(2);

/// Serves whichever ralph connected last, for ever.
pub(crate) fn hold(dir: &Path) -> io::Result<()> {
    let socket = listen(dir)?;
    let mut current: Option<UnixStream> = None;
    loop {
        let mut watched = vec![Watched::for_reading(&socket)];
        watched.extend(current.as_ref().map(Watched::for_reading));
        sys::wait(&mut watched, None)?;
        if watched[0].is_ready() {
            // An earlier one sees that it was let go of, and stops listening.
            current = Some(socket.accept()?.0);
            continue;
        }
        let Some(stream) = current.take() else {
            continue;
        };
        // Whatever was wrong with this one, the next may do better.
        match serve(&stream) {
            Ok(Turn::On) => current = Some(stream),
            Ok(Turn::Over) => {}
            Err(error) => eprintln!("guest: {error}"),
        }
    }
}

/// Whether ralph is still there.
enum Turn {
    On,
    Over,
}

/// The socket appears whole: with the permissions that let ralph, who may be another user, connect.
fn listen(dir: &Path) -> io::Result<UnixListener> {
    let (path, aside) = (dir.join(SOCKET), dir.join("making"));
    for stale in [&path, &aside] {
        match fs::remove_file(stale) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let socket = UnixListener::bind(&aside)?;
    fs::set_permissions(&aside, Permissions::from_mode(0o666))?;
    fs::rename(&aside, &path)?;
    Ok(socket)
}

/// Obeys one order.
fn serve(mut stream: &UnixStream) -> io::Result<Turn> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Turn::Over),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::Error::other("an order is too long"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    let order = Order::parse(&String::from_utf8_lossy(&text)).map_err(io::Error::other);
    let (outcome, files) = match order.and_then(obey) {
        Ok((state, files)) => (Outcome::Done(state), files),
        Err(error) => (Outcome::Failed(error.to_string()), Vec::new()),
    };
    answer(stream, &outcome, &files)?;
    Ok(Turn::On)
}

/// Does what is ordered; returns what is in force, and the listeners.
fn obey(order: Order) -> io::Result<(String, Vec<OwnedFd>)> {
    let files = match order {
        Order::Tell => Vec::new(),
        Order::Raise { firewall } => {
            raise(&firewall)?;
            links::own_every_address().map_err(|error| told("cannot own every address", &error))?;
            Vec::new()
        }
        Order::Listen { listeners } => listeners.into_iter().map(open).collect::<io::Result<_>>()?,
    };
    Ok((state()?, files))
}

/// Raises the firewall where there is none yet.
fn raise(text: &str) -> io::Result<()> {
    let firewall = Firewall::parse(text)?;
    for family in families() {
        let cannot = |error: io::Error| told(&format!("cannot set the firewall ({family:?})"), &error);
        if Firewall::read(family).map_err(cannot)?.is_untouched() {
            firewall.apply(family).map_err(cannot)?;
        }
    }
    Ok(())
}

/// What is in force, as the kernel tells it.
fn state() -> io::Result<String> {
    let mut state = links::describe()?;
    for family in families() {
        let name = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        state += name;
        state += "\n";
        state += &Firewall::read(family)?.to_string();
    }
    Ok(state)
}

/// The families that this kernel knows.
fn families() -> impl Iterator<Item = Family> {
    let six = Path::new(IPV6).exists().then_some(Family::V6);
    std::iter::once(Family::V4).chain(six)
}

/// Opens a listener. The one that an earlier ralph had may take a moment to be gone.
fn open((transport, address): (Transport, SocketAddr)) -> io::Result<OwnedFd> {
    let give_up = Instant::now() + GRACE;
    loop {
        let opened = match transport {
            Transport::Tcp => TcpListener::bind(address).map(OwnedFd::from),
            Transport::Udp => UdpSocket::bind(address).map(OwnedFd::from),
        };
        match opened {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                thread::sleep(PAUSE);
            }
            other => return other.map_err(|error| told(&format!("cannot listen at {address}"), &error)),
        }
    }
}

fn told(what: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{what}: {error}"))
}

/// The files go with the first byte.
fn answer(mut stream: &UnixStream, outcome: &Outcome, files: &[OwnedFd]) -> io::Result<()> {
    let text = outcome.to_string();
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let bytes = [&length.to_le_bytes(), text.as_bytes()].concat();
    let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let sent = sys_net::send_with_files(stream, &bytes, &files)?;
    stream.write_all(&bytes[sent..])
}
