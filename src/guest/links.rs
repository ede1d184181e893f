//! The interfaces and routes of this network namespace.

use std::io;

use super::firewall::LOOPBACK;
use super::netlink::{self, NetlinkRequest, NetlinkSocket, flag, int_at};
use super::sys_net::NetlinkProtocol;

/// Constants of `linux/rtnetlink.h`.
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const IS_UP: i32 = 1;
const V4: u8 = 2;
const LOCAL_TABLE: u8 = 255;
const STATIC: u8 = 4;
const HOST_SCOPE: u8 = 254;
const LOCAL: u8 = 2;
const LINK_NAME: u16 = 3;
const ROUTE_LINK: u16 = 4;

/// A network interface.
struct Link {
    index: i32,
    name: String,
    up: bool,
}

/// Routes every IPv4 address to the loopback interface, as a local address of this namespace.
pub(crate) fn make_all_addresses_local() -> io::Result<()> {
    let mut socket = NetlinkSocket::open(NetlinkProtocol::Route)?;
    let index = loopback(&mut socket)?.index.to_ne_bytes();
    let up = [
        &[0; 4],
        index.as_slice(),
        &IS_UP.to_ne_bytes(),
        &IS_UP.to_ne_bytes(),
    ]
    .concat();
    socket.send(&[NetlinkRequest::new(NEW_LINK, flag::ACK, &up)])?;
    let everything = [V4, 0, 0, 0, LOCAL_TABLE, STATIC, HOST_SCOPE, LOCAL, 0, 0, 0, 0];
    let route =
        NetlinkRequest::new(NEW_ROUTE, flag::ACK | flag::CREATE, &everything).with(ROUTE_LINK, &index);
    match socket.send(&[route]) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Describes what can be reached: the interfaces that are up, and whether every IPv4 address is local.
pub(crate) fn describe() -> io::Result<String> {
    let mut socket = NetlinkSocket::open(NetlinkProtocol::Route)?;
    let mut lines: Vec<String> = links(&mut socket)?
        .into_iter()
        .filter(|link| link.up)
        .map(|link| format!("up {}\n", link.name))
        .collect();
    let loopback = loopback(&mut socket)?.index;
    let routes = socket.list(&NetlinkRequest::new(
        GET_ROUTE,
        flag::DUMP,
        &[V4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ))?;
    let everything = |route: &&Vec<u8>| {
        let link = route.get(12..).and_then(|rest| netlink::find(rest, ROUTE_LINK));
        let ours = matches!(route[..], [V4, 0, 0, _, LOCAL_TABLE, _, _, LOCAL, ..]);
        ours && link.and_then(|link| int_at(link, 0)) == Some(loopback)
    };
    if routes.iter().any(|route| everything(&route)) {
        lines.push(format!("local 0.0.0.0/0 dev {LOOPBACK}\n"));
    }
    Ok(lines.concat())
}

fn loopback(socket: &mut NetlinkSocket) -> io::Result<Link> {
    let found = links(socket)?.into_iter().find(|link| link.name == LOOPBACK);
    found.ok_or_else(|| io::Error::other("no loopback interface"))
}

fn links(socket: &mut NetlinkSocket) -> io::Result<Vec<Link>> {
    let listed = socket.list(&NetlinkRequest::new(GET_LINK, flag::DUMP, &[0; 16]))?;
    let link = |item: &Vec<u8>| {
        let name = netlink::find(item.get(16..)?, LINK_NAME)?;
        Some(Link {
            index: int_at(item, 4)?,
            name: String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned(),
            up: int_at(item, 8)? & IS_UP != 0,
        })
    };
    Ok(listed.iter().filter_map(link).collect())
}
