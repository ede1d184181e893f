//! The firewall of this network namespace: a small `iptables-restore` and `iptables-save` of its own.
//!
//! It is written to the kernel's `nf_tables` in the shape that `iptables` itself gives it, so that `iptables -S` shows it.

use std::fmt;
use std::io;

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

/// Where packets pass: the kernel's number and the name that `iptables` gives its chain.
const HOOKS: [(u32, &str); 3] = [(1, "INPUT"), (2, "FORWARD"), (3, "OUTPUT")];

/// Which packets a firewall is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4 = 2,
    V6 = 10,
}

/// All chains of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Firewall(Vec<Chain>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Chain {
    name: String,
    policy: Fate,
    /// Each as `iptables` writes it behind the chain's name.
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Drop,
    Accept,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// Accepts what comes in from, or goes out to, an interface.
    Accept(Way, String),
    /// One that none of ours is.
    Strange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Firewall {
    /// Reads what `iptables-save` writes, as far as it is needed here. Anything else is an error.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let mut chains: Vec<Chain> = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["*filter" | "COMMIT"] => {}
                [name, policy, "[0:0]"] if name.starts_with(':') => chains.push(Chain {
                    name: name[1..].to_owned(),
                    policy: match policy {
                        "DROP" => Fate::Drop,
                        "ACCEPT" => Fate::Accept,
                        _ => return Err(unknown(line)),
                    },
                    rules: Vec::new(),
                }),
                ["-A", chain, way, interface, "-j", "ACCEPT"] => {
                    let way = Way::parse(way).ok_or_else(|| unknown(line))?;
                    let chain = chains.iter_mut().find(|known| known.name == chain);
                    let chain = chain.ok_or_else(|| unknown(line))?;
                    chain.rules.push(Rule::Accept(way, interface.to_owned()));
                }
                _ => return Err(unknown(line)),
            }
        }
        Ok(Self(chains))
    }

    /// Puts it in force, all of it or nothing.
    pub(crate) fn apply(&self, family: Family) -> io::Result<()> {
        let mut batch = vec![edge(nft::BATCH_BEGIN)];
        batch.push(request(nft::NEW_TABLE, family, flag::CREATE).with(1, TABLE));
        for chain in &self.0 {
            batch.push(chain.as_request(family)?);
            for rule in &chain.rules {
                batch.push(rule.as_request(family, &chain.name)?);
            }
        }
        batch.push(edge(nft::BATCH_END));
        Kernel::open(Netlink::Netfilter)?.ask(&batch)
    }

    /// What is in force.
    pub(crate) fn read(family: Family) -> io::Result<Self> {
        let mut kernel = Kernel::open(Netlink::Netfilter)?;
        let found = kernel.list(&request(nft::GET_CHAIN, family, flag::DUMP))?;
        let mut chains: Vec<Chain> = found.iter().filter_map(|item| Chain::read(body_of(item))).collect();
        chains.sort_by_key(|chain| HOOKS.iter().position(|(_, name)| *name == chain.name));
        for item in kernel.list(&request(nft::GET_RULE, family, flag::DUMP))? {
            let item = body_of(&item);
            let name = netlink::find(item, 2).map(text_of);
            if let Some(chain) = chains.iter_mut().find(|chain| Some(&chain.name) == name.as_ref()) {
                let expressions = netlink::find(item, 4).unwrap_or_default();
                chain.rules.push(Rule::read(expressions).unwrap_or(Rule::Strange));
            }
        }
        Ok(Self(chains))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Firewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*filter")?;
        for chain in &self.0 {
            let policy = match chain.policy {
                Fate::Drop => "DROP",
                Fate::Accept => "ACCEPT",
            };
            writeln!(f, ":{} {policy} [0:0]", chain.name)?;
        }
        for chain in &self.0 {
            for rule in &chain.rules {
                match rule {
                    Rule::Accept(way, interface) => {
                        writeln!(f, "-A {} {way} {interface} -j ACCEPT", chain.name)?;
                    }
                    Rule::Strange => writeln!(f, "-A {} (something else)", chain.name)?,
                }
            }
        }
        writeln!(f, "COMMIT")
    }
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
            name: if expected { name } else { format!("{}/{name}", text_of(table)) },
            policy: if policy == Some(nft::DROP) { Fate::Drop } else { Fate::Accept },
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

impl Way {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "-i" => Some(Self::In),
            "-o" => Some(Self::Out),
            _ => None,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "-i",
            Self::Out => "-o",
        })
    }
}

/// The beginning or the end of requests that are done together.
fn edge(kind: u16) -> Request {
    let subsystem = (nft::SUBSYSTEM >> 8).to_be_bytes();
    Request::new(kind, 0, &[0, 0, subsystem[0], subsystem[1]])
}

fn request(kind: u16, family: Family, flags: u16) -> Request {
    let flags = if flags == flag::DUMP { flags } else { flags | flag::ACK };
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

fn unknown(line: &str) -> io::Error {
    io::Error::other(format!("no such line of a firewall is known: {line}"))
}
