//! Probes: tries from inside a sandbox what should fail and what should work, and prints one line about each.
//!
//! A probe is one argument: `connect ADDRESS`, `send ADDRESS`, `lookup NAME [SERVER]`, `get HOST[:PORT] [ADDRESS]`,
//! `socket FAMILY PROTOCOL`, `io-uring`; with the feature `escapes` also those of `attack.rs`. All probes run in parallel.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::sys;
use super::sys_net::{SOCK_DGRAM, SOCK_RAW, SOCK_STREAM, open_socket};

/// Limit for each network operation of a probe.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// What probes send.
pub(super) const PAYLOAD: &[u8] = b"ralph probes its own sandbox";
const DNS: u16 = 53;
const HTTP: u16 = 80;
/// `EPROTONOSUPPORT`, `ESOCKTNOSUPPORT` and `EAFNOSUPPORT`.
const UNSUPPORTED_PROTOCOL: [i32; 3] = [93, 94, 97];

/// `ENOLINK`, with which the seccomp profile of ralph refuses. No kernel returns it for what is probed.
const FILTERED: i32 = 67;

/// Runs all probes and prints what each observed, in the order of the arguments.
pub(crate) fn run_all(probes: &[&str]) -> io::Result<()> {
    let started: Vec<_> = probes
        .iter()
        .map(|probe| {
            let probe = (*probe).to_owned();
            thread::spawn(move || run(&probe))
        })
        .collect();
    let mut output = io::stdout().lock();
    for thread in started {
        let observed = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the probe panicked")));
        let observed = observed.unwrap_or_else(|error| describe(&error));
        writeln!(output, "{}", observed.replace(['\n', '\r'], " "))?;
    }
    Ok(())
}

/// The word for an error, if it has one.
fn describe(error: &io::Error) -> String {
    let word = match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => "refused",
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable => {
            "unreachable"
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "silent",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "forbidden",
        ErrorKind::NotFound => "absent",
        _ => match error.raw_os_error() {
            Some(FILTERED) => "filtered",
            Some(errno) if UNSUPPORTED_PROTOCOL.contains(&errno) => "absent",
            _ => return format!("failed {error}"),
        },
    };
    word.to_owned()
}

fn run(probe: &str) -> io::Result<String> {
    let words: Vec<&str> = probe.split(' ').collect();
    match words[..] {
        ["connect", address] => {
            connect(parse(address)?)?.write_all(PAYLOAD)?;
            Ok("answered".to_owned())
        }
        ["send", address] => exchange(parse(address)?, PAYLOAD).map(|_| "answered".to_owned()),
        ["lookup", name] => Ok(lookup_result(look_up(name, name_server()?)?)),
        ["lookup", name, server] => {
            let server = SocketAddr::new(parse(server)?, DNS);
            Ok(lookup_result(look_up(name, server)?))
        }
        ["get", host] => match resolve(host)? {
            Some(address) => get(host, address),
            None => Ok(lookup_result(None)),
        },
        ["get", host, address] => get(host, parse(address)?),
        ["socket", family, protocol] => {
            let (family, protocol) = (parse(family)?, parse(protocol)?);
            open_any_kind(family, protocol).map(|()| "done".to_owned())
        }
        ["io-uring"] => sys::io_uring_setup().map(|()| "done".to_owned()),
        #[cfg(feature = "escapes")]
        ref words => super::attack::run(words),
        #[cfg(not(feature = "escapes"))]
        _ => Err(io::Error::other("unknown probe")),
    }
}

/// Opens a socket and closes it again. Families differ in the kinds of sockets that they have.
fn open_any_kind(family: i32, protocol: i32) -> io::Result<()> {
    let mut opened = Ok(());
    for kind in [SOCK_STREAM, SOCK_DGRAM, SOCK_RAW] {
        opened = open_socket(family, kind, protocol).map(drop);
        let is_filtered = |error: &io::Error| error.raw_os_error() == Some(FILTERED);
        if opened.is_ok() || opened.as_ref().is_err_and(is_filtered) {
            break;
        }
    }
    opened
}

pub(super) fn parse<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| io::Error::other(format!("`{text}` is not an address")))
}

/// Every address is the sandbox's own, so a socket whose port is by chance the one that it connects to would reach itself.
/// The second attempt gets another port, because the first one still has its own.
pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let first = TcpStream::connect_timeout(&address, TIMEOUT)?;
    let stream = if first.local_addr()? == first.peer_addr()? {
        TcpStream::connect_timeout(&address, TIMEOUT)?
    } else {
        first
    };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sends one datagram and waits for one. As in [`connect`], a socket must not reach itself.
pub(super) fn exchange(address: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => parse("0.0.0.0:0")?,
        SocketAddr::V6(_) => parse("[::]:0")?,
    };
    let mut socket = UdpSocket::bind(any)?;
    if socket.local_addr()?.port() == address.port() {
        socket = UdpSocket::bind(any)?;
    }
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(address)?;
    socket.send(bytes)?;
    let mut response = vec![0; 4096];
    let length = socket.recv(&mut response)?;
    response.truncate(length);
    Ok(response)
}

/// The DNS server that programs in the sandbox use.
fn name_server() -> io::Result<SocketAddr> {
    let text = fs::read_to_string("/etc/resolv.conf")?;
    let server = text.lines().find_map(|line| line.strip_prefix("nameserver "));
    let server = server.ok_or_else(|| io::Error::other("/etc/resolv.conf names no server"))?;
    Ok(SocketAddr::new(parse(server.trim())?, DNS))
}

fn lookup_result(address: Option<Ipv4Addr>) -> String {
    address.map_or_else(|| "no-such-name".to_owned(), |address| format!("at {address}"))
}

/// The address of a name; `None` if the server answers NXDOMAIN.
fn look_up(name: &str, server: SocketAddr) -> io::Result<Option<Ipv4Addr>> {
    const RCODE_MASK: u8 = 0xf;
    const NO_ERROR: u8 = 0;
    const NXDOMAIN: u8 = 3;
    let labels = name.split('.').flat_map(|label| {
        let length = u8::try_from(label.len()).unwrap_or(u8::MAX);
        std::iter::once(length).chain(label.bytes())
    });
    let mut query = vec![b'r', b'p', 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(labels);
    query.extend([0, 0, 1, 0, 1]);
    let response = exchange(server, &query)?;
    match response[..] {
        [b'r', b'p', _, flags, ..] if flags & RCODE_MASK == NXDOMAIN => Ok(None),
        // In a response with one record, the address is at the end.
        [b'r', b'p', _, flags, _, _, 0, 1, .., a, b, c, d] if flags & RCODE_MASK == NO_ERROR => {
            Ok(Some(Ipv4Addr::new(a, b, c, d)))
        }
        _ => Err(io::Error::other("malformed DNS response")),
    }
}

/// The address of a host, with port 80 unless it names another; `None` if the name does not exist.
pub(super) fn resolve(host: &str) -> io::Result<Option<SocketAddr>> {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, parse(port)?),
        None => (host, HTTP),
    };
    let address = look_up(name, name_server()?)?;
    Ok(address.map(|address| SocketAddr::from((address, port))))
}

/// The status and the body of the response.
pub(super) fn get(host: &str, address: SocketAddr) -> io::Result<String> {
    let mut stream = connect(address)?;
    let head = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut response = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.split(' ').nth(1).unwrap_or("nothing");
    Ok(format!("http {status} {}", body.trim_end()))
}
