//! Addresses that no sandbox may reach, whatever name resolves to them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// Why an address may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressClass {
    /// The host's own loopback.
    #[error("a loopback address")]
    Loopback,
    /// An address of the host.
    #[error("an address of the host")]
    Own,
    /// A private network.
    #[error("an address of a private network")]
    Private,
    /// Valid on one link only.
    #[error("a link-local address")]
    LinkLocal,
    /// A cloud's metadata service. No setting allows it.
    #[error("a metadata service")]
    Metadata,
    /// Carrier-grade NAT (100.64.0.0/10).
    #[error("a shared address (100.64.0.0/10)")]
    Shared,
    /// A multicast group.
    #[error("a multicast address")]
    Multicast,
    /// An IPv4-mapped IPv6 address.
    #[error("an IPv4-mapped IPv6 address")]
    Mapped,
    /// Not in use on the internet: unspecified, reserved, for documentation or measurements.
    #[error("an address that is not in use on the internet")]
    Reserved,
}

impl AddressClass {
    /// Classifies an address. Returns `None` for an address of the public internet.
    #[must_use]
    pub fn classify(address: IpAddr) -> Option<Self> {
        match address {
            _ if METADATA.contains(&address) => Some(Self::Metadata),
            IpAddr::V4(address) => classify_v4(address),
            IpAddr::V6(address) => classify_v6(address),
        }
    }

    /// Whether `dangerously_allow_addresses` can allow addresses of this class.
    #[must_use]
    pub fn can_be_allowed(self) -> bool {
        match self {
            Self::Metadata | Self::LinkLocal | Self::Multicast | Self::Mapped => false,
            Self::Loopback | Self::Own | Self::Private | Self::Shared | Self::Reserved => true,
        }
    }
}

/// The metadata services of the large clouds.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

fn classify_v4(address: Ipv4Addr) -> Option<AddressClass> {
    let class = match address.octets() {
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        [100, 64..=127, ..] => AddressClass::Shared,
        [224..=239, ..] => AddressClass::Multicast,
        [0 | 240..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressClass::Reserved,
        _ => return None,
    };
    Some(class)
}

/// Only `2000::/3` is public. An address that embeds an IPv4 address is classified by that address, or refused.
fn classify_v6(address: Ipv6Addr) -> Option<AddressClass> {
    let class = match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] => AddressClass::Mapped,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => return behind_nat64(address).and_then(AddressClass::classify),
        [0x2002, high, low, ..] => {
            let carried = IpAddr::V4(embedded(high, low));
            return AddressClass::classify(carried).or(Some(AddressClass::Reserved));
        }
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => AddressClass::Private,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => return None,
        _ => AddressClass::Reserved,
    };
    Some(class)
}

/// The IPv4 address that a NAT64 address translates to (RFC 6052).
pub(crate) fn behind_nat64(address: Ipv6Addr) -> Option<IpAddr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(embedded(high, low).into()),
        _ => None,
    }
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low))
}

/// A range of addresses: `10.1.2.3` or `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    prefix: u8,
}

impl AddressRange {
    /// Whether the range contains the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

/// A range of one address.
impl From<IpAddr> for AddressRange {
    fn from(first: IpAddr) -> Self {
        let prefix = match first {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self { first, prefix }
    }
}

impl FromStr for AddressRange {
    type Err = AddressRangeError;

    /// Parses an address or a range. A range wider than /8 (/16 for IPv6) is refused: it would be a policy, not an
    /// exception.
    fn from_str(text: &str) -> Result<Self, AddressRangeError> {
        let error = || AddressRangeError(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let whole = Self::from(address.parse::<IpAddr>().map_err(|_| error())?);
        let prefix = prefix.map_or(Ok(whole.prefix), str::parse).map_err(|_| error())?;
        let widest = if whole.first.is_ipv4() { 8 } else { 16 };
        if (widest..=whole.prefix).contains(&prefix) {
            Ok(Self { prefix, ..whole })
        } else {
            Err(error())
        }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// A text that is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not an address or range such as `10.1.2.3` or `10.1.0.0/16` (at most /8, or /16 for IPv6)")]
pub struct AddressRangeError(String);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("127.0.0.1", AddressClass::Loopback)]
    #[case("127.255.0.9", AddressClass::Loopback)]
    #[case("10.0.0.1", AddressClass::Private)]
    #[case("172.16.0.1", AddressClass::Private)]
    #[case("172.31.255.255", AddressClass::Private)]
    #[case("192.168.1.1", AddressClass::Private)]
    #[case("169.254.1.1", AddressClass::LinkLocal)]
    #[case("169.254.169.254", AddressClass::Metadata)]
    #[case("168.63.129.16", AddressClass::Metadata)]
    #[case("100.100.100.200", AddressClass::Metadata)]
    #[case("100.64.0.1", AddressClass::Shared)]
    #[case("224.0.0.1", AddressClass::Multicast)]
    #[case("0.0.0.0", AddressClass::Reserved)]
    #[case("0.1.2.3", AddressClass::Reserved)]
    #[case("198.18.0.7", AddressClass::Reserved)]
    #[case("255.255.255.255", AddressClass::Reserved)]
    #[case("203.0.113.1", AddressClass::Reserved)]
    #[case("::", AddressClass::Reserved)]
    #[case("::1", AddressClass::Loopback)]
    #[case("::127.0.0.1", AddressClass::Reserved)]
    #[case("::ffff:127.0.0.1", AddressClass::Mapped)]
    #[case("::ffff:93.184.216.34", AddressClass::Mapped)]
    #[case("fe80::1", AddressClass::LinkLocal)]
    #[case("fd00::1", AddressClass::Private)]
    #[case("fd00:ec2::254", AddressClass::Metadata)]
    #[case("ff02::1", AddressClass::Multicast)]
    #[case("64:ff9b::7f00:1", AddressClass::Loopback)]
    #[case("64:ff9b::a9fe:a9fe", AddressClass::Metadata)]
    #[case("64:ff9b::a83f:8110", AddressClass::Metadata)]
    #[case("2002:7f00:1::1", AddressClass::Loopback)]
    #[case("2002:5db8:d822::1", AddressClass::Reserved)]
    #[case("2001::1", AddressClass::Reserved)]
    #[case("2001:db8::1", AddressClass::Reserved)]
    #[case("4000::1", AddressClass::Reserved)]
    fn addresses_that_are_not_the_internet_have_a_class(#[case] text: &str, #[case] class: AddressClass) {
        assert_eq!(AddressClass::classify(text.parse().unwrap()), Some(class));
    }

    #[rstest]
    fn addresses_of_the_internet_have_none(
        #[values(
            "93.184.216.34",
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "64:ff9b::101:101"
        )]
        text: &str,
    ) {
        assert_eq!(AddressClass::classify(text.parse().unwrap()), None);
    }

    #[rstest]
    #[case("10.1.0.0/16", "10.1.2.3", true)]
    #[case("10.1.0.0/16", "10.2.0.0", false)]
    #[case("10.1.2.3", "10.1.2.3", true)]
    #[case("10.1.2.3", "10.1.2.4", false)]
    #[case("fd12::/32", "fd12:0:1::", true)]
    #[case("fd12::/32", "10.1.2.3", false)]
    #[case("fd12::1", "fd12::2", false)]
    fn a_range_contains_its_addresses(#[case] range: &str, #[case] address: &str, #[case] held: bool) {
        let range = AddressRange::from_str(range).unwrap();
        assert_eq!(range.contains(address.parse().unwrap()), held);
    }

    #[rstest]
    fn a_range_that_allows_everything_is_refused(
        #[values(
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/7",
            "10.0.0.0/33",
            "10.0.0",
            "a/8",
            "10.0.0.0/",
            ""
        )]
        text: &str,
    ) {
        assert!(AddressRange::from_str(text).is_err(), "{text}");
    }
}
