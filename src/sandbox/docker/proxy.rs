//! The variables that point programs in a sandbox to the explicit proxy of its gateway.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::gateway::Phantom;

/// The address of the proxy inside.
pub(super) const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3128);

/// Programs differ in the spelling they read; curl reads `http_proxy` in lower case only.
const WITH_ADDRESS: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// Addresses inside the sandbox are not proxied.
const WITHOUT: [&str; 2] = ["NO_PROXY", "no_proxy"];
const INSIDE: &str = "localhost,127.0.0.1,::1";

/// The variables for a proxy at this address.
pub(in crate::sandbox) fn variables(phantom: &Phantom, address: impl Display) -> BTreeMap<String, String> {
    let address = phantom.proxy_url(address);
    let with = WITH_ADDRESS.map(|name| (name.to_owned(), address.clone()));
    let without = WITHOUT.map(|name| (name.to_owned(), INSIDE.to_owned()));
    with.into_iter().chain(without).collect()
}
