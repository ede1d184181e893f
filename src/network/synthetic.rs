//! One synthetic address per name, so that the destination of a connection identifies the name.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::host::HostName;

/// The synthetic addresses of one sandbox. An address is never used for a second name.
#[derive(Debug, Default)]
pub struct SyntheticAddresses {
    by_name: HashMap<HostName, Ipv4Addr>,
    names: Vec<HostName>,
}

impl SyntheticAddresses {
    /// The maximum number of names, so that a sandbox cannot fill the host's memory.
    pub const MOST: usize = 16_384;

    /// 198.18.0.0/15 is reserved for benchmarks: no public host has such an address.
    const FIRST: u32 = Ipv4Addr::new(198, 18, 0, 1).to_bits();

    /// The address of the name, assigned on first use. `None` if all are used.
    pub fn address_of(&mut self, name: &HostName) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_name.get(name) {
            return Some(*address);
        }
        let index = u32::try_from(self.names.len()).ok()?;
        if self.names.len() >= Self::MOST {
            return None;
        }
        let address = Ipv4Addr::from_bits(Self::FIRST + index);
        self.names.push(name.clone());
        self.by_name.insert(name.clone(), address);
        Some(address)
    }

    /// Whether the name already has an address.
    #[must_use]
    pub fn contains(&self, name: &HostName) -> bool {
        self.by_name.contains_key(name)
    }

    /// The name of an address.
    #[must_use]
    pub fn name_of(&self, address: Ipv4Addr) -> Option<&HostName> {
        let index = address.to_bits().checked_sub(Self::FIRST)?;
        self.names.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::AddressClass;

    #[test]
    fn each_name_has_one_address_and_each_address_one_name() {
        let mut addresses = SyntheticAddresses::default();
        let [a, b] = ["a.example", "b.example"].map(|name| HostName::parse(name).unwrap());
        let first = addresses.address_of(&a).unwrap();
        let second = addresses.address_of(&b).unwrap();
        assert_ne!(first, second);
        assert_eq!(addresses.address_of(&a), Some(first));
        assert_eq!(addresses.name_of(first), Some(&a));
        assert_eq!(addresses.name_of(second), Some(&b));
        assert_eq!(addresses.name_of(Ipv4Addr::new(198, 18, 0, 0)), None);
        assert_eq!(addresses.name_of(Ipv4Addr::new(9, 9, 9, 9)), None);
    }

    #[test]
    fn the_number_of_addresses_is_limited_and_none_is_public() {
        let mut addresses = SyntheticAddresses::default();
        for index in 0..SyntheticAddresses::MOST {
            let name = HostName::parse(&format!("n{index}.example")).unwrap();
            let address = addresses.address_of(&name).unwrap();
            assert_eq!(
                AddressClass::classify(address.into()),
                Some(AddressClass::Reserved)
            );
        }
        assert_eq!(addresses.address_of(&HostName::parse("one.more").unwrap()), None);
    }
}
