//! The explicit proxy, as the programs of a sandbox find it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::super::{Egress, ProxyVariables};
use crate::gateway::Phantom;

/// Where it is inside.
pub(super) const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3128);

/// Programs read the one or the other spelling; curl reads `http_proxy` in lower case alone.
const WITH_ADDRESS: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// What is inside is reached directly.
const WITHOUT: [&str; 2] = ["NO_PROXY", "no_proxy"];
const INSIDE: &str = "localhost,127.0.0.1,::1";

/// Whom the proxy serves, where commands are to be told of it.
pub(super) fn told(egress: &Egress) -> Option<Phantom> {
    match egress.proxy_variables {
        ProxyVariables::Set => egress.phantom.clone(),
        ProxyVariables::Unset => None,
    }
}

/// The variables that tell of one at this address.
pub(in crate::sandbox) fn variables(phantom: &Phantom, address: impl Display) -> BTreeMap<String, String> {
    let address = phantom.proxy_url(address);
    let with = WITH_ADDRESS.map(|name| (name.to_owned(), address.clone()));
    let without = WITHOUT.map(|name| (name.to_owned(), INSIDE.to_owned()));
    with.into_iter().chain(without).collect()
}
