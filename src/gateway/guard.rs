//! Checks an address right before it is connected to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::network::{AddressClass, AddressRange, behind_nat64};

/// Forbids connections to addresses outside of the public internet, and to those of the host.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allowed: Vec<AddressRange>,
}

impl AddressGuard {
    /// A guard that allows these ranges, which it would forbid otherwise.
    #[must_use]
    pub fn dangerously_opening(ranges: impl IntoIterator<Item = AddressRange>) -> Self {
        Self {
            allowed: ranges.into_iter().collect(),
        }
    }

    /// Why an address is forbidden; `None` when it is allowed.
    #[must_use]
    pub fn refusal(&self, address: IpAddr) -> Option<AddressClass> {
        let class =
            AddressClass::classify(address).or_else(|| is_own(address).then_some(AddressClass::Own))?;
        let is_allowed = class.can_be_allowed() && self.allowed.iter().any(|range| range.contains(address));
        (!is_allowed).then_some(class)
    }
}

/// Whether the address belongs to the host, directly or through NAT64.
fn is_own(address: IpAddr) -> bool {
    let translated = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => behind_nat64(address),
    };
    is_host_address(address) || translated.is_some_and(is_host_address)
}

/// Whether a socket that is connected to the address has it as its source address. Nothing is sent. An error counts as an
/// address of the host, unless the address cannot be reached at all.
fn is_host_address(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind(SocketAddr::new(any, 0))
        .and_then(|socket| socket.connect(SocketAddr::new(address, 9)).map(|()| socket))
        .and_then(|socket| socket.local_addr());
    match source {
        Ok(source) => source.ip() == address,
        Err(error) => !is_unreachable(&error),
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    let no_such_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable | io::ErrorKind::AddrNotAvailable
    ) || error.raw_os_error() == Some(no_such_family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_host_are_detected() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(is_own("64:ff9b::7f00:1".parse().unwrap()));
        assert!(!is_own(Ipv4Addr::new(93, 184, 216, 34).into()));
    }

    #[test]
    fn a_range_can_be_allowed_but_metadata_cannot() {
        let open = |text: &str| AddressGuard::dangerously_opening([text.parse().unwrap()]);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let metadata = IpAddr::from([169, 254, 169, 254]);
        assert_eq!(
            AddressGuard::default().refusal(loopback),
            Some(AddressClass::Loopback)
        );
        assert_eq!(open("127.0.0.0/8").refusal(loopback), None);
        assert_eq!(open("10.0.0.0/8").refusal(loopback), Some(AddressClass::Loopback));
        assert_eq!(
            open("169.254.0.0/16").refusal(metadata),
            Some(AddressClass::Metadata)
        );
    }
}
