//! The attacks of the escape suite. Compiled only with the feature `escapes`. An attack that succeeds has its effect, so
//! run them only in sandboxes that were created to be attacked.
//!
//! Beside the probes of `probe.rs` these are `say tcp|udp ADDRESS HEX...`, `follow HOST PATH`, `echo ADDRESS` and
//! `attempt ACTION [PATH]`.

use std::ffi::{CString, c_int};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::firewall::{KernelFirewall, PacketAction};
use super::probe::{PAYLOAD, TIMEOUT, connect, exchange, get, parse, resolve};
use super::sys;
use super::sys_net::{IpFamily, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM, open_socket};

/// Constants of the kernel.
const CLONE_NEWUSER: c_int = 0x1000_0000;
const CLONE_NEWNET: c_int = 0x4000_0000;
const AF_INET: c_int = 2;
const AF_PACKET: c_int = 17;
const IPPROTO_ICMP: c_int = 1;
const IPPROTO_SCTP: c_int = 132;

/// The pause between two parts of a message.
const PAUSE: Duration = Duration::from_millis(30);
/// How many bytes of a response are read.
const MAX_RESPONSE: usize = 1024;

/// Runs one attack and returns what was observed.
pub(super) fn run(words: &[&str]) -> io::Result<String> {
    match *words {
        ["say", "tcp", address, ref parts @ ..] => {
            let parts: io::Result<Vec<Vec<u8>>> = parts.iter().map(|part| from_hex(part)).collect();
            say(parse(address)?, &parts?).map(|bytes| to_hex(&bytes))
        }
        ["say", "udp", address, hex] => {
            exchange(parse(address)?, &from_hex(hex)?).map(|bytes| to_hex(&bytes))
        }
        ["follow", host, path] => follow(host, path),
        ["echo", address] => echo(parse(address)?).map(|()| "answered".to_owned()),
        ["attempt", ref action @ ..] => attempt(action).map(|()| "done".to_owned()),
        _ => Err(io::Error::other("unknown probe")),
    }
}

/// Attempts something that no program in a sandbox should be able to do.
fn attempt(action: &[&str]) -> io::Result<()> {
    match action {
        ["open-firewall"] => KernelFirewall::apply(PacketAction::Accept, IpFamily::V4),
        ["mount", target] => sys::mount_tmpfs(&CString::new(*target)?),
        ["leave-network"] => sys::unshare_namespace(CLONE_NEWNET),
        ["leave-user"] => sys::unshare_namespace(CLONE_NEWUSER),
        ["raw-socket"] => open_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP).map(drop),
        ["packet-socket"] => open_socket(AF_PACKET, SOCK_RAW, 0).map(drop),
        ["sctp-socket"] => open_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP).map(drop),
        ["other-interface"] => find_other_interface(),
        ["find", path] => fs::symlink_metadata(path).map(drop),
        // Opening the file for writing is proof enough, and changes nothing.
        ["overwrite", path] => File::options().write(true).open(path).map(drop),
        _ => Err(io::Error::other("unknown action")),
    }
}

/// Succeeds if there is an interface beside loopback.
fn find_other_interface() -> io::Result<()> {
    for entry in fs::read_dir("/sys/class/net")? {
        if entry?.file_name() != "lo" {
            return Ok(());
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Requests a path, and then the host of the redirect that is the response.
fn follow(host: &str, path: &str) -> io::Result<String> {
    let address = resolve(host)?.ok_or(io::ErrorKind::NotFound)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let response = say(address, &[request.into_bytes()])?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let target = response
        .lines()
        .find_map(|line| line.strip_prefix("location: http://"));
    let target = target.ok_or_else(|| io::Error::other("the response is no redirect"))?;
    let target = target.trim_end_matches('/');
    match resolve(target)? {
        Some(address) => get(target, address),
        None => Ok("no-such-name".to_owned()),
    }
}

/// Sends bytes over TCP, with a pause between parts, and reads the first [`MAX_RESPONSE`] bytes of the response.
fn say(address: SocketAddr, parts: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let mut stream = connect(address)?;
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            std::thread::sleep(PAUSE);
        }
        stream.write_all(part)?;
    }
    let mut response = vec![0; MAX_RESPONSE];
    let mut length = stream.read(&mut response)?;
    // The body of a response may come later than its head.
    while response.starts_with(b"HTTP/") && length < MAX_RESPONSE {
        match stream.read(&mut response[length..]) {
            Ok(0) | Err(_) => break,
            Ok(more) => length += more,
        }
    }
    response.truncate(length);
    Ok(response)
}

/// Sends an ICMP echo request and waits for the reply. The kernel fills in identifier and checksum.
fn echo(address: Ipv4Addr) -> io::Result<()> {
    const REQUEST: u8 = 8;
    // Such a socket needs no privilege.
    let socket = UdpSocket::from(OwnedFd::from(open_socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)?));
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect((address, 0))?;
    socket.send(&[&[REQUEST, 0, 0, 0, 0, 0, 0, 1], PAYLOAD].concat())?;
    socket.recv(&mut [0; MAX_RESPONSE]).map(drop)
}

fn from_hex(hex: &str) -> io::Result<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes.ok_or_else(|| io::Error::other("not hexadecimal"))
}

fn to_hex(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("received {}", hex.concat())
}
