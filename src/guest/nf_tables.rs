//! The firewall through the kernel's `nf_tables`, over netlink.

use std::io;

use super::firewall::{ChainRule, Direction, HOOKS, KernelChain, KernelFirewall, PacketAction, unknown};
use super::netlink::{self, NetlinkRequest, NetlinkSocket, attribute, flag, nested_attribute};
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
    pub(super) const DROP: u32 = 0;
    pub(super) const ACCEPT: u32 = 1;
    pub(super) const VERDICT_REGISTER: u32 = 0;
    pub(super) const REGISTER: u32 = 1;
    pub(super) const EQUAL: u32 = 0;
    pub(super) const IN_NAME: u32 = 6;
    pub(super) const OUT_NAME: u32 = 7;
}

const TABLE: &[u8] = b"filter\0";

/// Sets the firewall atomically.
pub(super) fn apply(firewall: &KernelFirewall, family: IpFamily) -> io::Result<()> {
    let mut batch = vec![batch_limit(nft::BATCH_BEGIN)];
    batch.push(request(nft::NEW_TABLE, family, flag::CREATE).with(1, TABLE));
    for chain in &firewall.0 {
        batch.push(chain.to_request(family)?);
        for rule in &chain.rules {
            batch.push(rule.to_request(family, &chain.name)?);
        }
    }
    batch.push(batch_limit(nft::BATCH_END));
    NetlinkSocket::open(NetlinkProtocol::Netfilter)?.send(&batch)
}

/// Reads the firewall from the kernel.
pub(super) fn read(family: IpFamily) -> io::Result<KernelFirewall> {
    let mut socket = NetlinkSocket::open(NetlinkProtocol::Netfilter)?;
    let found = socket.list(&request(nft::GET_CHAIN, family, flag::DUMP))?;
    let mut chains: Vec<KernelChain> = found
        .iter()
        .filter_map(|item| KernelChain::read(body(item)))
        .collect();
    chains.sort_by_key(|chain| HOOKS.iter().position(|(_, name)| *name == chain.name));
    for item in socket.list(&request(nft::GET_RULE, family, flag::DUMP))? {
        let item = body(&item);
        let name = netlink::find(item, 2).map(parse_text);
        if let Some(chain) = chains.iter_mut().find(|chain| Some(&chain.name) == name.as_ref()) {
            let expressions = netlink::find(item, 4).unwrap_or_default();
            chain.rules.push(ChainRule::read(expressions).unwrap_or(ChainRule::Unknown));
        }
    }
    Ok(KernelFirewall(chains))
}

impl KernelChain {
    fn to_request(&self, family: IpFamily) -> io::Result<NetlinkRequest> {
        let (hook, _) = HOOKS
            .iter()
            .find(|(_, name)| *name == self.name)
            .ok_or_else(|| unknown(&self.name))?;
        let policy = match self.policy {
            PacketAction::Drop => nft::DROP,
            PacketAction::Accept => nft::ACCEPT,
        };
        let hook = [number(1, *hook), number(2, 0)];
        Ok(request(nft::NEW_CHAIN, family, flag::CREATE)
            .with(1, TABLE)
            .with(3, &text(&self.name))
            .with_nested(4, &hook)
            .with(5, &policy.to_be_bytes())
            .with(7, b"filter\0"))
    }

    /// `None` for a chain without a hook, which no packet enters by itself. A chain that ralph did not make gets the name
    /// of its table as a prefix.
    fn read(item: &[u8]) -> Option<Self> {
        let hook = netlink::find(item, 4)?;
        let name = netlink::find(item, 3).map(parse_text)?;
        let table = netlink::find(item, 1)?;
        let number = be_number(netlink::find(hook, 1)?)?;
        let expected = table == TABLE && HOOKS.contains(&(number, name.as_str()));
        let policy = netlink::find(item, 5).and_then(be_number);
        Some(Self {
            name: if expected {
                name
            } else {
                format!("{}/{name}", parse_text(table))
            },
            policy: if policy == Some(nft::DROP) {
                PacketAction::Drop
            } else {
                PacketAction::Accept
            },
            rules: Vec::new(),
        })
    }
}

impl ChainRule {
    fn to_request(&self, family: IpFamily, chain: &str) -> io::Result<NetlinkRequest> {
        let Self::Accept(direction, interface) = self else {
            return Err(unknown(chain));
        };
        let key = match direction {
            Direction::In => nft::IN_NAME,
            Direction::Out => nft::OUT_NAME,
        };
        let verdict = nested_attribute(2, &[nested_attribute(2, &[number(1, nft::ACCEPT)])]);
        let expressions = [
            expression("meta", &[number(2, key), number(1, nft::REGISTER)]),
            expression(
                "cmp",
                &[
                    number(1, nft::REGISTER),
                    number(2, nft::EQUAL),
                    nested_attribute(3, &[attribute(1, &text(interface))]),
                ],
            ),
            expression("counter", &[]),
            expression("immediate", &[number(1, nft::VERDICT_REGISTER), verdict]),
        ];
        Ok(request(nft::NEW_RULE, family, flag::CREATE | flag::APPEND)
            .with(1, TABLE)
            .with(2, &text(chain))
            .with_nested(4, &expressions))
    }

    /// `None` for a rule that ralph did not make.
    fn read(expressions: &[u8]) -> Option<Self> {
        let named: Vec<(String, &[u8])> = netlink::read_attributes(expressions)
            .map(|(_, element)| {
                let name = netlink::find(element, 1).map(parse_text).unwrap_or_default();
                (name, netlink::find(element, 2).unwrap_or_default())
            })
            .filter(|(name, _)| name != "counter")
            .collect();
        let [(meta, meta_data), (cmp, cmp_data), (immediate, verdict)] = &named[..] else {
            return None;
        };
        if [meta.as_str(), cmp, immediate] != ["meta", "cmp", "immediate"] {
            return None;
        }
        let direction = match be_number(netlink::find(meta_data, 2)?)? {
            nft::IN_NAME => Direction::In,
            nft::OUT_NAME => Direction::Out,
            _ => return None,
        };
        let equal = be_number(netlink::find(cmp_data, 2)?)? == nft::EQUAL;
        let interface = netlink::find(netlink::find(cmp_data, 3)?, 1)?;
        let verdict = netlink::find(netlink::find(netlink::find(verdict, 2)?, 2)?, 1)?;
        let accepted = be_number(verdict)? == nft::ACCEPT;
        // Without the terminating zero, the name would be a prefix.
        let terminated = interface.last() == Some(&0);
        (equal && accepted && terminated).then(|| Self::Accept(direction, parse_text(interface)))
    }
}

/// The beginning or the end of an atomic batch of requests.
fn batch_limit(kind: u16) -> NetlinkRequest {
    let subsystem = (nft::SUBSYSTEM >> 8).to_be_bytes();
    NetlinkRequest::new(kind, 0, &[0, 0, subsystem[0], subsystem[1]])
}

fn request(kind: u16, family: IpFamily, flags: u16) -> NetlinkRequest {
    let flags = if flags == flag::DUMP {
        flags
    } else {
        flags | flag::ACK
    };
    NetlinkRequest::new(kind, flags, &[family as u8, 0, 0, 0])
}

/// The part of a reply after the `nfgenmsg` header.
fn body(item: &[u8]) -> &[u8] {
    item.get(4..).unwrap_or_default()
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nested_attribute(1, &[attribute(1, &text(name)), nested_attribute(2, data)])
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
