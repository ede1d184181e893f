//! Listeners on this machine's own addresses that no sandbox may be heard by.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::network::probe::Canary;

/// The most addresses of one family that are listened at.
const MOST: usize = 3;
/// How long a datagram of this machine may take to itself.
const NEAR: Duration = Duration::from_millis(200);
const DNS: u16 = 53;
/// Addresses for examples, which are nowhere: every way to others is a way to them.
const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// Listeners that can be heard from outside a sandbox, and were.
#[derive(Debug, Default)]
pub(super) struct Canaries {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Canaries {
    /// Listens wherever a sandbox could reach this machine if nothing held it back. A listener that this machine itself
    /// is not heard by shows nothing, and is left out.
    pub(super) fn open() -> Self {
        let mut canaries = Self::default();
        for address in own_addresses() {
            canaries.tcp.extend(heard_tcp(address).ok());
            for port in [0, DNS] {
                canaries
                    .udp
                    .extend(heard_udp(SocketAddr::new(address, port)).ok());
            }
        }
        canaries
    }

    /// Where they are.
    pub(super) fn all(&self) -> Vec<Canary> {
        let tcp = self.tcp.iter().filter_map(|one| one.local_addr().ok());
        let udp = self.udp.iter().filter_map(|one| one.local_addr().ok());
        let datagrams = |address: SocketAddr| match address.port() {
            DNS => Canary::Dns(address.ip()),
            _ => Canary::Udp(address),
        };
        tcp.map(Canary::Tcp).chain(udp.map(datagrams)).collect()
    }

    /// One that has heard something since.
    pub(super) fn heard(&self) -> Option<SocketAddr> {
        let called = self.tcp.iter().find(|one| one.accept().is_ok());
        let sent_to = || self.udp.iter().find(|one| one.recv(&mut [0; 64]).is_ok());
        match called {
            Some(tcp) => tcp.local_addr().ok(),
            None => sent_to()?.local_addr().ok(),
        }
    }
}

/// A listener that this machine has just been heard by.
fn heard_tcp(address: IpAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((address, 0))?;
    let caller = TcpStream::connect_timeout(&listener.local_addr()?, NEAR)?;
    listener.set_nonblocking(true)?;
    let (_, heard) = listener.accept()?;
    expect(heard == caller.local_addr()?)?;
    Ok(listener)
}

fn heard_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    let sender = UdpSocket::bind((address.ip(), 0))?;
    sender.send_to(b"?", socket.local_addr()?)?;
    socket.set_read_timeout(Some(NEAR))?;
    let (_, heard) = socket.recv_from(&mut [0; 64])?;
    expect(heard == sender.local_addr()?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn expect(holds: bool) -> io::Result<()> {
    holds
        .then_some(())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The addresses of this machine that others can reach, as far as the system tells.
fn own_addresses() -> Vec<IpAddr> {
    let four = own_v4(&fs::read_to_string("/proc/net/fib_trie").unwrap_or_default());
    let six = own_v6(&fs::read_to_string("/proc/net/if_inet6").unwrap_or_default());
    let four = four.into_iter().take(MOST).map(IpAddr::from);
    let listed = four.chain(six.into_iter().take(MOST).map(IpAddr::from));
    // Not every system has such lists.
    let mut addresses: Vec<IpAddr> = listed.chain(sender(FAR_V4)).chain(sender(FAR_V6)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The address by which this machine would send to another one. Nothing is sent.
fn sender(far: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match far {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, DNS)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback()).then_some(own)
}

/// An address stands on the line before the one that says that it is this machine's.
fn own_v4(trie: &str) -> Vec<Ipv4Addr> {
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let mut found: Vec<Ipv4Addr> = lines
        .windows(2)
        .filter(|pair| pair[1] == "/32 host LOCAL")
        .filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse().ok())
        .filter(|address: &Ipv4Addr| !address.is_loopback())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Each line begins with an address; the fourth word is 00 for those that reach beyond their own wire.
fn own_v6(table: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let bits = u128::from_str_radix(words.first()?, 16).ok()?;
        (*words.get(3)? == "00").then(|| Ipv6Addr::from_bits(bits))
    };
    table.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 172.17.0.1
           /32 host LOCAL
        |-- 172.17.255.255
           /32 link BROADCAST
Local:
        |-- 172.17.0.1
           /32 host LOCAL
";
    const IF_INET6: &str = "\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000000042acfffe110002 05 40 20 80  docker0
20010db8000000000000000000000005 02 40 00 80     eth0
";

    #[test]
    fn own_addresses_are_read_from_what_the_kernel_tells() {
        assert_eq!(own_v4(TRIE), [Ipv4Addr::new(172, 17, 0, 1)]);
        assert_eq!(own_v6(IF_INET6), ["2001:db8::5".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn a_canary_hears_whoever_reaches_it() {
        let tcp = heard_tcp(Ipv4Addr::LOCALHOST.into()).unwrap();
        let udp = heard_udp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = udp.local_addr().unwrap();
        let canaries = Canaries {
            tcp: vec![tcp],
            udp: vec![udp],
        };
        assert_eq!(canaries.all().len(), 2);
        assert_eq!(canaries.heard(), None);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"!", address).unwrap();
        assert_eq!(canaries.heard(), Some(address));
        let Some(Canary::Tcp(address)) = canaries.all().first().copied() else {
            panic!("{canaries:?}");
        };
        TcpStream::connect(address).unwrap();
        assert_eq!(canaries.heard(), Some(address));
    }
}
