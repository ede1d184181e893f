//! Canaries: listeners on the addresses of the host that no sandbox may reach.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use if_addrs::get_if_addrs;

use super::docker::SealError;
use crate::exec::blocking;
use crate::network::probe::Canary;

/// How many addresses of each family are used. Few hosts have as many.
const MAX_ADDRESSES: usize = 32;
/// How long a packet of the host to itself may take.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(200);
const DNS: u16 = 53;
/// How many packets and connections are read at most, if a sandbox sends without end.
const MAX_HITS: usize = 10_000;

/// Listeners that the host itself can reach. That was tested.
#[derive(Debug, Default)]
pub(super) struct Canaries {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Canaries {
    /// Listens at all addresses at which a sandbox without a seal could reach the host. `gateway` is the address of the
    /// host in the sandbox's own network, if it has one.
    pub(super) async fn open(gateway: Option<IpAddr>) -> Result<Self, SealError> {
        let opened = blocking(move || Self::at(&own_addresses(gateway)?)).await;
        opened.map_err(SealError::NoCanaries)
    }

    /// Listens at these addresses. Listeners that the host itself cannot reach prove nothing and are left out. If there
    /// is an address, there must be at least one TCP and one UDP listener.
    fn at(addresses: &[IpAddr]) -> io::Result<Self> {
        let mut canaries = Self::default();
        let mut unreached = None;
        for &address in addresses {
            match tcp_canary(address) {
                Ok(listener) => canaries.tcp.push(listener),
                Err(error) => unreached = Some((address, error)),
            }
            match udp_canary(SocketAddr::new(address, 0)) {
                Ok(socket) => canaries.udp.push(socket),
                Err(error) => unreached = Some((address, error)),
            }
        }
        if let Some((address, error)) = unreached
            && (canaries.tcp.is_empty() || canaries.udp.is_empty())
        {
            let message = format!("this host cannot reach its own listener at {address}: {error}");
            return Err(io::Error::new(error.kind(), message));
        }
        // The DNS port may be used by a resolver of the host, or need root.
        let dns = addresses.iter().map(|&address| SocketAddr::new(address, DNS));
        canaries
            .udp
            .extend(dns.filter_map(|address| udp_canary(address).ok()));
        Ok(canaries)
    }

    /// Their addresses.
    pub(super) fn all(&self) -> Vec<Canary> {
        let tcp = self.tcp.iter().filter_map(|one| one.local_addr().ok());
        let udp = self.udp.iter().filter_map(|one| one.local_addr().ok());
        let datagrams = |address: SocketAddr| match address.port() {
            DNS => Canary::Dns(address.ip()),
            _ => Canary::Udp(address),
        };
        tcp.map(Canary::Tcp).chain(udp.map(datagrams)).collect()
    }

    /// The addresses of all canaries that were reached since.
    pub(super) fn all_reached(&self) -> BTreeSet<SocketAddr> {
        std::iter::from_fn(|| self.reached()).take(MAX_HITS).collect()
    }

    /// The address of a canary that was reached since.
    pub(super) fn reached(&self) -> Option<SocketAddr> {
        let tcp = self.tcp.iter().find(|one| one.accept().is_ok());
        let sent_to = || self.udp.iter().find(|one| one.recv(&mut [0; 64]).is_ok());
        match tcp {
            Some(tcp) => tcp.local_addr().ok(),
            None => sent_to()?.local_addr().ok(),
        }
    }
}

/// A TCP listener that the host has just reached. The peer is recognised by what it sends: a NAT of the host, such as that
/// of a container engine, may change its address.
fn tcp_canary(address: IpAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((address, 0))?;
    let mut caller = TcpStream::connect_timeout(&listener.local_addr()?, LOCAL_TIMEOUT)?;
    listener.set_nonblocking(true)?;
    let (mut accepted, _) = listener.accept()?;
    let (sent, mut received) = (nonce(), [0; 8]);
    caller.write_all(&sent)?;
    accepted.set_nonblocking(false)?;
    accepted.set_read_timeout(Some(LOCAL_TIMEOUT))?;
    accepted.read_exact(&mut received)?;
    expect(received == sent)?;
    Ok(listener)
}

fn udp_canary(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    let sender = UdpSocket::bind((address.ip(), 0))?;
    let (sent, mut received) = (nonce(), [0; 64]);
    sender.send_to(&sent, socket.local_addr()?)?;
    socket.set_read_timeout(Some(LOCAL_TIMEOUT))?;
    let length = socket.recv(&mut received)?;
    expect(received[..length] == sent)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn nonce() -> [u8; 8] {
    fastrand::u64(..).to_ne_bytes()
}

fn expect(holds: bool) -> io::Result<()> {
    holds
        .then_some(())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The addresses of the host that other hosts can reach.
fn own_addresses(gateway: Option<IpAddr>) -> io::Result<Vec<IpAddr>> {
    let interfaces = get_if_addrs().map_err(|error| {
        let message = format!("cannot list the addresses of this host: {error}");
        io::Error::new(error.kind(), message)
    })?;
    let all: Vec<(String, IpAddr)> = interfaces
        .into_iter()
        .map(|interface| (interface.name.clone(), interface.ip()))
        .collect();
    let routed = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let routed = routed.map(|(from, to)| routed_address(from, to));
    Ok(choose(&all, &routed, gateway))
}

/// The address from which the host would send to `to`: that of its default route. Nothing is sent.
fn routed_address(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// The addresses to listen at, by interface: at most [`MAX_ADDRESSES`] of each family. Those of the default routes come
/// first, then those on the interface of the sandbox's gateway.
fn choose(all: &[(String, IpAddr)], routed: &[Option<IpAddr>], gateway: Option<IpAddr>) -> Vec<IpAddr> {
    let near = all.iter().find(|(_, address)| Some(*address) == gateway);
    let near = near.map(|(interface, _)| interface);
    let mut ranked: Vec<(u8, IpAddr)> = all
        .iter()
        .filter(|(_, address)| is_reachable(*address))
        .map(|(interface, address)| match () {
            () if routed.contains(&Some(*address)) => (0, *address),
            () if Some(interface) == near => (1, *address),
            () => (2, *address),
        })
        .collect();
    ranked.sort_unstable();
    ranked.dedup();
    let addresses = ranked.into_iter().map(|(_, address)| address);
    let (four, six): (Vec<IpAddr>, Vec<IpAddr>) = addresses.partition(IpAddr::is_ipv4);
    let unused = [&four, &six].map(|of_family| of_family.len().saturating_sub(MAX_ADDRESSES));
    if unused != [0, 0] {
        tracing::warn!(
            ?unused,
            "the host has more addresses than sandboxes are tested against"
        );
    }
    let some = |of_family: Vec<IpAddr>| of_family.into_iter().take(MAX_ADDRESSES);
    some(four).chain(some(six)).collect()
}

/// Whether other hosts can reach this address.
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

    /// An address that no host has.
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1));
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[rstest]
    #[case::no_address(&[], true)]
    #[case::reached(&[HERE], true)]
    #[case::one_of_two_is_reached(&[HERE, ELSEWHERE], true)]
    #[case::none_is_reached(&[ELSEWHERE], false)]
    fn a_host_with_addresses_needs_a_canary_that_it_reaches(
        #[case] addresses: &[IpAddr],
        #[case] expected: bool,
    ) {
        let opened = Canaries::at(addresses);
        assert_eq!(opened.is_ok(), expected, "{opened:?}");
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
    fn addresses_that_other_hosts_reach_are_used(#[case] address: IpAddr, #[case] expected: bool) {
        assert_eq!(is_reachable(address), expected);
    }

    #[test]
    fn every_address_is_used_and_those_near_the_sandbox_first() {
        let parse = |text: &str| -> IpAddr { text.parse().unwrap() };
        let all = [
            ("lo", "127.0.0.1"),
            ("br-1", "10.0.0.1"),
            ("br-2", "10.0.1.1"),
            ("docker0", "172.17.0.1"),
            ("vmnet", "192.168.64.1"),
            ("vmnet", "192.168.65.1"),
            ("eth0", "192.168.1.7"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::2"),
        ]
        .map(|(interface, address)| (interface.to_owned(), parse(address)));
        let routed = [Some(parse("192.168.1.7")), None];
        let chosen = [
            "192.168.1.7",
            "192.168.64.1",
            "192.168.65.1",
            "10.0.0.1",
            "10.0.1.1",
            "172.17.0.1",
            "fd00::2",
        ];
        assert_eq!(
            choose(&all, &routed, Some(parse("192.168.65.1"))),
            chosen.map(parse)
        );
    }

    #[test]
    fn a_host_with_too_many_addresses_uses_its_default_route() {
        let bridges = (0..100).map(|n| (format!("br-{n}"), IpAddr::from([10, 0, n, 1])));
        let routed = IpAddr::from([192, 168, 1, 7]);
        let all: Vec<_> = bridges.chain([("eth0".to_owned(), routed)]).collect();
        let chosen = choose(&all, &[Some(routed)], None);
        assert_eq!((chosen.len(), chosen[0]), (MAX_ADDRESSES, routed));
    }

    #[test]
    fn a_canary_reports_that_it_was_reached() {
        let tcp = tcp_canary(Ipv4Addr::LOCALHOST.into()).unwrap();
        let udp = udp_canary(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = udp.local_addr().unwrap();
        let canaries = Canaries {
            tcp: vec![tcp],
            udp: vec![udp],
        };
        assert_eq!(canaries.all().len(), 2);
        assert_eq!(canaries.reached(), None);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"!", address).unwrap();
        assert_eq!(canaries.reached(), Some(address));
        let Some(Canary::Tcp(address)) = canaries.all().first().copied() else {
            panic!("{canaries:?}");
        };
        TcpStream::connect(address).unwrap();
        assert_eq!(canaries.reached(), Some(address));
    }
}
