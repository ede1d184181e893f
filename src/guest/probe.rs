//! Tries from inside a sandbox what should fail and what should work, and prints a line about each.
//!
//! A probe is one argument: `connect ADDRESS`, `send ADDRESS`, `lookup NAME [SERVER]`, `get HOST[:PORT] [ADDRESS]`,
//! `say tcp|udp ADDRESS HEX`, `echo ADDRESS`, `dare DEED [PATH]`. They are all tried at once.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::deed;
use super::sys_net;

/// How long something may take that should fail, or work, at once.
const AT_ONCE: Duration = Duration::from_secs(5);
/// What is said to whoever should not hear it.
const WORDS: &[u8] = b"ralph probes its own sandbox";
const DNS: u16 = 53;
const HTTP: u16 = 80;
/// What the system says of a protocol that it does not know.
const NO_SUCH_PROTOCOL: [i32; 3] = [93, 94, 97];
/// The most that is heard of an answer.
const MOST_HEARD: usize = 1024;

/// Tries each and prints what was seen, in their order.
pub(crate) fn carry_out(probes: &[&str]) -> io::Result<()> {
    let started: Vec<_> = probes
        .iter()
        .map(|probe| {
            let probe = (*probe).to_owned();
            thread::spawn(move || try_out(&probe))
        })
        .collect();
    let mut output = io::stdout().lock();
    for thread in started {
        let seen = thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        let seen = seen.unwrap_or_else(|error| told(&error));
        writeln!(output, "{}", seen.replace(['\n', '\r'], " "))?;
    }
    Ok(())
}

/// An error as a word, where there is one.
fn told(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => "refused".to_owned(),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable => {
            "unreachable".to_owned()
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "silent".to_owned(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "forbidden".to_owned(),
        ErrorKind::NotFound => "absent".to_owned(),
        _ if error
            .raw_os_error()
            .is_some_and(|number| NO_SUCH_PROTOCOL.contains(&number)) =>
        {
            "absent".to_owned()
        }
        _ => format!("failed {error}"),
    }
}

fn try_out(probe: &str) -> io::Result<String> {
    let words: Vec<&str> = probe.split(' ').collect();
    match words[..] {
        ["connect", address] => {
            connect(parsed(address)?)?.write_all(WORDS)?;
            Ok("answered".to_owned())
        }
        ["send", address] => exchange(parsed(address)?, WORDS).map(|_| "answered".to_owned()),
        ["lookup", name] => Ok(found(look_up(name, name_server()?)?)),
        ["lookup", name, server] => Ok(found(look_up(name, SocketAddr::new(parsed(server)?, DNS))?)),
        ["get", host] => {
            let (name, port) = match host.split_once(':') {
                Some((name, port)) => (name, parsed(port)?),
                None => (host, HTTP),
            };
            match look_up(name, name_server()?)? {
                Some(address) => get(host, SocketAddr::from((address, port))),
                None => Ok(found(None)),
            }
        }
        ["get", host, address] => get(host, parsed(address)?),
        ["say", "tcp", address, hex] => {
            say(parsed(address)?, &from_hex(hex)?).map(|heard| told_as_hex(&heard))
        }
        ["say", "udp", address, hex] => {
            exchange(parsed(address)?, &from_hex(hex)?).map(|heard| told_as_hex(&heard))
        }
        ["echo", address] => echo(parsed(address)?).map(|()| "answered".to_owned()),
        ["dare", ref deed @ ..] => deed::dare(deed).map(|()| "done".to_owned()),
        _ => Err(io::Error::other("no such probe")),
    }
}

fn parsed<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| io::Error::other(format!("`{text}` is no address")))
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, AT_ONCE)?;
    stream.set_read_timeout(Some(AT_ONCE))?;
    stream.set_write_timeout(Some(AT_ONCE))?;
    Ok(stream)
}

/// Sends one datagram and waits for one.
fn exchange(address: SocketAddr, words: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => parsed("0.0.0.0:0")?,
        SocketAddr::V6(_) => parsed("[::]:0")?,
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(AT_ONCE))?;
    socket.connect(address)?;
    socket.send(words)?;
    let mut answer = vec![0; 4096];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

/// Says something over TCP and hears the beginning of the answer.
fn say(address: SocketAddr, words: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect(address)?;
    stream.write_all(words)?;
    let mut heard = vec![0; MOST_HEARD];
    let length = stream.read(&mut heard)?;
    heard.truncate(length);
    Ok(heard)
}

/// Sends an echo request of ICMP and waits for the reply. The kernel adds what tells it from others.
fn echo(address: Ipv4Addr) -> io::Result<()> {
    const REQUEST: u8 = 8;
    let socket = sys_net::echo_socket()?;
    socket.set_read_timeout(Some(AT_ONCE))?;
    socket.connect((address, 0))?;
    socket.send(&[&[REQUEST, 0, 0, 0, 0, 0, 0, 1], WORDS].concat())?;
    socket.recv(&mut [0; MOST_HEARD]).map(drop)
}

fn from_hex(hex: &str) -> io::Result<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes.ok_or_else(|| io::Error::other("this is not hexadecimal"))
}

fn told_as_hex(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("heard {}", hex.concat())
}

/// The server that every program in the sandbox asks.
fn name_server() -> io::Result<SocketAddr> {
    let text = fs::read_to_string("/etc/resolv.conf")?;
    let server = text.lines().find_map(|line| line.strip_prefix("nameserver "));
    let server = server.ok_or_else(|| io::Error::other("/etc/resolv.conf names no server"))?;
    Ok(SocketAddr::new(parsed(server.trim())?, DNS))
}

fn found(address: Option<Ipv4Addr>) -> String {
    address.map_or_else(|| "no-such-name".to_owned(), |address| format!("at {address}"))
}

/// The address of a name; `None` when there is no such name.
fn look_up(name: &str, server: SocketAddr) -> io::Result<Option<Ipv4Addr>> {
    // Where the answer says how it went, and what it says there.
    const RESULT: u8 = 0xf;
    const NO_ERROR: u8 = 0;
    const NO_SUCH_NAME: u8 = 3;
    let labels = name.split('.').flat_map(|label| {
        let length = u8::try_from(label.len()).unwrap_or(u8::MAX);
        std::iter::once(length).chain(label.bytes())
    });
    let mut query = vec![b'r', b'p', 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(labels);
    query.extend([0, 0, 1, 0, 1]);
    let answer = exchange(server, &query)?;
    match answer[..] {
        [b'r', b'p', _, flags, ..] if flags & RESULT == NO_SUCH_NAME => Ok(None),
        // The address is the last thing in an answer with one record.
        [b'r', b'p', _, flags, _, _, 0, 1, .., a, b, c, d] if flags & RESULT == NO_ERROR => {
            Ok(Some(Ipv4Addr::new(a, b, c, d)))
        }
        _ => Err(io::Error::other("an answer that makes no sense")),
    }
}

/// The status and the text of what is answered.
fn get(host: &str, address: SocketAddr) -> io::Result<String> {
    let mut stream = connect(address)?;
    let head = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or("nothing");
    Ok(format!("http {status} {}", text.trim_end()))
}
