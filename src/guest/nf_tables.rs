//! The firewall by way of the kernel's `nf_tables`, spoken to by netlink.

use std::io;

use super::firewall::{Chain, Family, Fate, Firewall, HOOKS, Rule, Way, unknown};
use super::netlink::{self, Kernel, Request, attribute, attributes, flag};
use super::sys_net::Netlink;

/// The kernel's words, from `linux/netfilter/nf_tables.h`.
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

/// Puts it in force, all of it or nothing.
pub(super) fn apply(firewall: &Firewall, family: Family) -> io::Result<()> {
    let mut batch = vec![edge(nft::BATCH_BEGIN)];
    batch.push(request(nft::NEW_TABLE, family, flag::CREATE).with(1, TABLE));
    for chain in &firewall.0 {
        batch.push(chain.as_request(family)?);
        for rule in &chain.rules {
            batch.push(rule.as_request(family, &chain.name)?);
        }
    }
    batch.push(edge(nft::BATCH_END));
    Kernel::open(Netlink::Netfilter)?.ask(&batch)
}

/// What is in force.
pub(super) fn read(family: Family) -> io::Result<Firewall> {
    let mut kernel = Kernel::open(Netlink::Netfilter)?;
    let found = kernel.list(&request(nft::GET_CHAIN, family, flag::DUMP))?;
    let mut chains: Vec<Chain> = found
        .iter()
        .filter_map(|item| Chain::read(body_of(item)))
        .collect();
    chains.sort_by_key(|chain| HOOKS.iter().position(|(_, name)| *name == chain.name));
    for item in kernel.list(&request(nft::GET_RULE, family, flag::DUMP))? {
        let item = body_of(&item);
        let name = netlink::find(item, 2).map(text_of);
        if let Some(chain) = chains.iter_mut().find(|chain| Some(&chain.name) == name.as_ref()) {
            let expressions = netlink::find(item, 4).unwrap_or_default();
            chain.rules.push(Rule::read(expressions).unwrap_or(Rule::Strange));
        }
    }
    Ok(Firewall(chains))
}

impl Chain {
    fn as_request(&self, family: Family) -> io::Result<Request> {
        let (hook, _) = HOOKS
            .iter()
            .find(|(_, name)| *name == self.name)
            .ok_or_else(|| unknown(&self.name))?;
        let policy = match self.policy {
            Fate::Drop => nft::DROP,
            Fate::Accept => nft::ACCEPT,
        };
        let hook = [number(1, *hook), number(2, 0)];
        Ok(request(nft::NEW_CHAIN, family, flag::CREATE)
            .with(1, TABLE)
            .with(3, &text(&self.name))
            .with_all(4, &hook)
            .with(5, &policy.to_be_bytes())
            .with(7, b"filter\0"))
    }

    /// `None` for a chain that no packet passes by itself. One at a place that is not ours gets a name that is not.
    fn read(item: &[u8]) -> Option<Self> {
        let hook = netlink::find(item, 4)?;
        let name = netlink::find(item, 3).map(text_of)?;
        let table = netlink::find(item, 1)?;
        let number = be_number(netlink::find(hook, 1)?)?;
        let expected = table == TABLE && HOOKS.contains(&(number, name.as_str()));
        let policy = netlink::find(item, 5).and_then(be_number);
        Some(Self {
            name: if expected {
                name
            } else {
                format!("{}/{name}", text_of(table))
            },
            policy: if policy == Some(nft::DROP) {
                Fate::Drop
            } else {
                Fate::Accept
            },
            rules: Vec::new(),
        })
    }
}

impl Rule {
    fn as_request(&self, family: Family, chain: &str) -> io::Result<Request> {
        let Self::Accept(way, interface) = self else {
            return Err(unknown(chain));
        };
        let key = match way {
            Way::In => nft::IN_NAME,
            Way::Out => nft::OUT_NAME,
        };
        let verdict = attributes(2, &[attributes(2, &[number(1, nft::ACCEPT)])]);
        let expressions = [
            expression("meta", &[number(2, key), number(1, nft::REGISTER)]),
            expression(
                "cmp",
                &[
                    number(1, nft::REGISTER),
                    number(2, nft::EQUAL),
                    attributes(3, &[attribute(1, &text(interface))]),
                ],
            ),
            expression("counter", &[]),
            expression("immediate", &[number(1, nft::VERDICT_REGISTER), verdict]),
        ];
        Ok(request(nft::NEW_RULE, family, flag::CREATE | flag::APPEND)
            .with(1, TABLE)
            .with(2, &text(chain))
            .with_all(4, &expressions))
    }

    /// `None` for one that is not of ours.
    fn read(expressions: &[u8]) -> Option<Self> {
        let named: Vec<(String, &[u8])> = netlink::read_attributes(expressions)
            .map(|(_, element)| {
                let name = netlink::find(element, 1).map(text_of).unwrap_or_default();
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
        let way = match be_number(netlink::find(meta_data, 2)?)? {
            nft::IN_NAME => Way::In,
            nft::OUT_NAME => Way::Out,
            _ => return None,
        };
        let equal = be_number(netlink::find(cmp_data, 2)?)? == nft::EQUAL;
        let interface = netlink::find(netlink::find(cmp_data, 3)?, 1)?;
        let verdict = netlink::find(netlink::find(netlink::find(verdict, 2)?, 2)?, 1)?;
        let accepted = be_number(verdict)? == nft::ACCEPT;
        // Without the zero at its end it would be the beginning of a name.
        let whole = interface.last() == Some(&0);
        (equal && accepted && whole).then(|| Self::Accept(way, text_of(interface)))
    }
}

/// The beginning or the end of requests that are done together.
fn edge(kind: u16) -> Request {
    let subsystem = (nft::SUBSYSTEM >> 8).to_be_bytes();
    Request::new(kind, 0, &[0, 0, subsystem[0], subsystem[1]])
}

fn request(kind: u16, family: Family, flags: u16) -> Request {
    let flags = if flags == flag::DUMP {
        flags
    } else {
        flags | flag::ACK
    };
    Request::new(kind, flags, &[family as u8, 0, 0, 0])
}

/// What follows the family in an answer.
fn body_of(item: &[u8]) -> &[u8] {
    item.get(4..).unwrap_or_default()
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    attributes(1, &[attribute(1, &text(name)), attributes(2, data)])
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

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
