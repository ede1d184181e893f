//! The firewall through the kernel's `nf_tables`, over netlink.

use std::io;

use super::firewall::{Direction, HOOKS, KernelChain, KernelFirewall, LOOPBACK, PacketAction};
use super::netlink::{self, NetlinkRequest, NetlinkSocket, attribute, flag};
use super::sys_net::{IpFamily, NetlinkProtocol};

/// Constants of `linux/netfilter/nf_tables.h`.
mod nft {
    pub(super) const SUBSYSTEM: u16 = 10 << 8;
    pub(super) const BATCH_BEGIN: u16 = 0x10;
    pub(super) const BATCH_END: u16 = 0x11;
    pub(super) const NEW_TABLE: u16 = SUBSYSTEM;
    pub(super) const NEW_CHAIN: u16 = SUBSYSTEM | 3;
    pub(super) const GET_CHAIN: u16 = SUBSYSTEM | 4;
    pub(super) const NEW_RULE: u16 = SUBSYSTEM | 6;
    pub(super) const GET_RULE: u16 = SUBSYSTEM | 7;
    pub(super) const VERDICT_REGISTER: u32 = 0;
    pub(super) const REGISTER: u32 = 1;
    pub(super) const EQUAL: u32 = 0;
    pub(super) const IN_NAME: u32 = 6;
    pub(super) const OUT_NAME: u32 = 7;
}

const TABLE: &[u8] = b"filter\0";
const CREATE: u16 = flag::CREATE | flag::ACK;

/// Sets the firewall atomically.
pub(super) fn apply(policy: PacketAction, family: IpFamily) -> io::Result<()> {
    let mut batch = vec![batch_limit(nft::BATCH_BEGIN)];
    batch.push(request(nft::NEW_TABLE, family, CREATE).with(1, TABLE));
    for hook in HOOKS {
        let chain = request(nft::NEW_CHAIN, family, CREATE)
            .with(1, TABLE)
            .with(3, &text(hook.chain))
            .with(4, &[number(1, hook.number), number(2, 0)].concat())
            .with(5, &(policy as u32).to_be_bytes())
            .with(7, b"filter\0");
        batch.push(chain);
        if let Some(direction) = hook.accepts {
            let rule = request(nft::NEW_RULE, family, CREATE | flag::APPEND)
                .with(1, TABLE)
                .with(2, &text(hook.chain))
                .with(4, &accept_loopback(direction).concat());
            batch.push(rule);
        }
    }
    batch.push(batch_limit(nft::BATCH_END));
    NetlinkSocket::open(NetlinkProtocol::Netfilter)?.send(&batch)
}

/// Reads the firewall from the kernel.
pub(super) fn read(family: IpFamily) -> io::Result<KernelFirewall> {
    let mut socket = NetlinkSocket::open(NetlinkProtocol::Netfilter)?;
    let found = socket.list(&request(nft::GET_CHAIN, family, flag::DUMP))?;
    let mut chains: Vec<KernelChain> = found.iter().filter_map(|item| read_chain(body(item))).collect();
    chains.sort_by_key(|chain| HOOKS.iter().position(|hook| hook.chain == chain.name));
    for item in socket.list(&request(nft::GET_RULE, family, flag::DUMP))? {
        let item = body(&item);
        let name = netlink::find(item, 2).map(parse_text);
        if let Some(chain) = chains.iter_mut().find(|chain| Some(&chain.name) == name.as_ref()) {
            let expressions = netlink::find(item, 4).unwrap_or_default();
            chain.rules.push(read_rule(expressions));
        }
    }
    Ok(KernelFirewall(chains))
}

/// `None` for a chain without a hook, which no packet enters by itself. A chain that ralph did not make gets the name of
/// its table as a prefix.
fn read_chain(item: &[u8]) -> Option<KernelChain> {
    let hook = be_number(netlink::find(netlink::find(item, 4)?, 1)?)?;
    let name = netlink::find(item, 3).map(parse_text)?;
    let table = netlink::find(item, 1)?;
    let is_known = table == TABLE
        && HOOKS
            .iter()
            .any(|known| known.number == hook && known.chain == name);
    let policy = netlink::find(item, 5).and_then(be_number);
    Some(KernelChain {
        name: if is_known {
            name
        } else {
            format!("{}/{name}", parse_text(table))
        },
        policy: if policy == Some(PacketAction::Drop as u32) {
            PacketAction::Drop
        } else {
            PacketAction::Accept
        },
        rules: Vec::new(),
    })
}

/// The loopback packets that a rule accepts; `None` for a rule that ralph did not make.
fn read_rule(expressions: &[u8]) -> Option<Direction> {
    let named = |element: &[u8]| netlink::find(element, 1).map(parse_text);
    let found: Vec<Vec<u8>> = netlink::read_attributes(expressions)
        .filter(|(_, element)| named(element).as_deref() != Some("counter"))
        .map(|(_, element)| attribute(1, element))
        .collect();
    Direction::BOTH.into_iter().find(|direction| {
        let [meta, cmp, _counter, immediate] = accept_loopback(*direction);
        found == [meta, cmp, immediate]
    })
}

/// The expressions of a rule that accepts loopback packets, in the order in which the kernel reports their fields.
fn accept_loopback(direction: Direction) -> [Vec<u8>; 4] {
    let key = match direction {
        Direction::In => nft::IN_NAME,
        Direction::Out => nft::OUT_NAME,
    };
    // With the terminating zero; without it, the name would be a prefix.
    let interface = attribute(3, &attribute(1, &text(LOOPBACK)));
    let accept = attribute(2, &attribute(2, &number(1, PacketAction::Accept as u32)));
    [
        expression("meta", &[number(2, key), number(1, nft::REGISTER)]),
        expression(
            "cmp",
            &[number(1, nft::REGISTER), number(2, nft::EQUAL), interface],
        ),
        expression("counter", &[]),
        expression("immediate", &[number(1, nft::VERDICT_REGISTER), accept]),
    ]
}

/// The beginning or the end of an atomic batch of requests.
fn batch_limit(kind: u16) -> NetlinkRequest {
    let subsystem = (nft::SUBSYSTEM >> 8).to_be_bytes();
    NetlinkRequest::new(kind, 0, &[0, 0, subsystem[0], subsystem[1]])
}

fn request(kind: u16, family: IpFamily, flags: u16) -> NetlinkRequest {
    NetlinkRequest::new(kind, flags, &[family as u8, 0, 0, 0])
}

/// The part of a reply after the `nfgenmsg` header.
fn body(item: &[u8]) -> &[u8] {
    item.get(4..).unwrap_or_default()
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    attribute(
        1,
        &[attribute(1, &text(name)), attribute(2, &data.concat())].concat(),
    )
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn be_number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn parse_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
