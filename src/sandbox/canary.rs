//! Listeners on this machine's own addresses that no sandbox may be heard by.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use if_addrs::get_if_addrs;
use thiserror::Error;

use crate::network::probe::Canary;

/// The most addresses of one family that are listened at.
const MOST: usize = 3;
/// How long a datagram of this machine may take to itself.
const NEAR: Duration = Duration::from_millis(200);
const DNS: u16 = 53;

/// Listeners that can be heard from outside a sandbox, and were.
#[derive(Debug, Default)]
pub(super) struct Canaries {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

/// Why there are no canaries, though a sandbox could reach this machine. Nothing can be shown without them.
#[derive(Debug, Error)]
pub enum CanaryError {
    /// The system failed.
    #[error("this machine does not tell its own addresses")]
    NoAddresses(#[source] io::Error),
    /// It has addresses, and does not hear itself there.
    #[error("no listener of this machine is heard, the last one at {address}")]
    Unheard {
        /// The last address that was tried.
        address: IpAddr,
        /// Why it is not heard there.
        #[source]
        source: io::Error,
    },
}

impl Canaries {
    /// Listens wherever a sandbox could reach this machine if nothing held it back.
    pub(super) fn open() -> Result<Self, CanaryError> {
        Self::at(&own_addresses().map_err(CanaryError::NoAddresses)?)
    }

    /// Listens at these addresses. A listener that this machine itself is not heard by shows nothing, and is left out;
    /// but where there is an address, there is a listener of each kind in the end.
    fn at(addresses: &[IpAddr]) -> Result<Self, CanaryError> {
        let mut canaries = Self::default();
        let mut unheard = None;
        for &address in addresses {
            let failed = |source| CanaryError::Unheard { address, source };
            match heard_tcp(address) {
                Ok(listener) => canaries.tcp.push(listener),
                Err(error) => unheard = Some(failed(error)),
            }
            match heard_udp(SocketAddr::new(address, 0)) {
                Ok(socket) => canaries.udp.push(socket),
                Err(error) => unheard = Some(failed(error)),
            }
        }
        match unheard {
            Some(unheard) if canaries.tcp.is_empty() || canaries.udp.is_empty() => return Err(unheard),
            Some(_) | None => {}
        }
        // That port belongs to this machine's own resolver, where there is one, and to root, where that is somebody else.
        let dns = addresses.iter().map(|&address| SocketAddr::new(address, DNS));
        canaries
            .udp
            .extend(dns.filter_map(|address| heard_udp(address).ok()));
        Ok(canaries)
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

/// The addresses of this machine that others can reach, some of each family.
fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let mut all: Vec<IpAddr> = get_if_addrs()?
        .into_iter()
        .map(|interface| interface.ip())
        .filter(|address| is_reachable(*address))
        .collect();
    all.sort_unstable();
    all.dedup();
    let (four, six): (Vec<IpAddr>, Vec<IpAddr>) = all.into_iter().partition(IpAddr::is_ipv4);
    Ok(four
        .into_iter()
        .take(MOST)
        .chain(six.into_iter().take(MOST))
        .collect())
}

/// Whether it leads to this machine, from beyond its own wire.
fn is_reachable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => !four.is_loopback(),
        IpAddr::V6(six) => !six.is_loopback() && !six.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::Ipv4Addr;

    use rstest::rstest;

    /// Nobody's, and no test's either.
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1));
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[rstest]
    #[case::no_address(&[], true)]
    #[case::heard(&[HERE], true)]
    #[case::one_of_two_is_heard(&[HERE, ELSEWHERE], true)]
    #[case::none_is_heard(&[ELSEWHERE], false)]
    fn a_machine_with_addresses_has_canaries_or_there_is_no_proof(
        #[case] addresses: &[IpAddr],
        #[case] shown: bool,
    ) {
        let opened = Canaries::at(addresses);
        assert_eq!(opened.is_ok(), shown, "{opened:?}");
        if let Ok(canaries) = opened {
            let kinds = canaries.tcp.len().min(canaries.udp.len());
            assert_eq!(kinds, addresses.len().min(1));
        }
    }

    #[rstest]
    #[case("127.0.0.1", false)]
    #[case("::1", false)]
    #[case("fe80::42", false)]
    #[case("172.17.0.1", true)]
    #[case("2001:db8::5", true)]
    fn an_address_is_listened_at_when_others_can_reach_it(#[case] address: IpAddr, #[case] expected: bool) {
        assert_eq!(is_reachable(address), expected);
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
