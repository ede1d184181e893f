//! Which addresses may be connected to, looked at right before connecting.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::network::{AddressClass, AddressRange, behind_nat64};

/// Keeps connections away from addresses that are not of the internet, and from this machine's own.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    opened: Vec<AddressRange>,
}

impl AddressGuard {
    /// A guard that lets these ranges through although it would not: the user's own choice, or a test's.
    #[must_use]
    pub fn dangerously_opening(ranges: impl IntoIterator<Item = AddressRange>) -> Self {
        Self {
            opened: ranges.into_iter().collect(),
        }
    }

    /// Why an address may not be connected to; `None` when it may.
    #[must_use]
    pub fn refusal(&self, address: IpAddr) -> Option<AddressClass> {
        let class =
            AddressClass::classify(address).or_else(|| is_own(address).then_some(AddressClass::Own))?;
        let opened = class.can_be_allowed() && self.opened.iter().any(|range| range.contains(address));
        (!opened).then_some(class)
    }
}

/// Whether the address is this machine's, or leads to one that is.
fn is_own(address: IpAddr) -> bool {
    let translated = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => behind_nat64(address),
    };
    is_this_machine(address) || translated.is_some_and(is_this_machine)
}

/// Only then does a connection to it come from it. Nothing is sent. What cannot be found out counts as this machine,
/// unless there is no way to such an address at all.
fn is_this_machine(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind(SocketAddr::new(any, 0))
        .and_then(|socket| socket.connect(SocketAddr::new(address, 9)).map(|()| socket))
        .and_then(|socket| socket.local_addr());
    match source {
        Ok(source) => source.ip() == address,
        Err(error) => !is_out_of_reach(&error),
    }
}

fn is_out_of_reach(error: &io::Error) -> bool {
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
    fn own_addresses_are_told_from_others() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(is_own("64:ff9b::7f00:1".parse().unwrap()));
        assert!(!is_own(Ipv4Addr::new(93, 184, 216, 34).into()));
    }

    #[test]
    fn a_range_is_opened_by_naming_it_and_metadata_never_is() {
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
