//! The firewall of this network namespace: a minimal `iptables-restore` and `iptables-save`.
//!
//! It is set through `nf_tables`, in the form that `iptables` uses, so that `iptables -S` shows it. Kernels without
//! `nf_tables` get it through the older `ip_tables` interface.

use std::fmt;
use std::io;

use super::sys_net::IpFamily;
use super::{ip_tables, nf_tables};

/// The errors of a kernel without `nf_tables`: `EPROTONOSUPPORT`, `EOPNOTSUPP`, `EAFNOSUPPORT`, and `EINVAL` for a request
/// that no subsystem handles.
const NO_NF_TABLES: [i32; 4] = [93, 95, 97, 22];

/// The netfilter hooks: the kernel's number and the chain name of `iptables`.
pub(super) const HOOKS: [(u32, &str); 3] = [(1, "INPUT"), (2, "FORWARD"), (3, "OUTPUT")];

/// All chains of one IP family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFirewall(pub(super) Vec<KernelChain>);

/// The rules at one hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelChain {
    pub(super) name: String,
    pub(super) policy: PacketAction,
    pub(super) rules: Vec<ChainRule>,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketAction {
    Drop,
    Accept,
}

/// One rule of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChainRule {
    /// Accepts packets that enter or leave through this interface.
    Accept(Direction, String),
    /// Any rule that ralph does not set.
    Unknown,
}

/// Whether a packet enters or leaves through an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

impl KernelFirewall {
    /// Parses the subset of the `iptables-save` format that ralph uses. Anything else is an error.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let mut chains: Vec<KernelChain> = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["*filter" | "COMMIT"] => {}
                [name, policy, "[0:0]"] if name.starts_with(':') => chains.push(KernelChain {
                    name: name[1..].to_owned(),
                    policy: match policy {
                        "DROP" => PacketAction::Drop,
                        "ACCEPT" => PacketAction::Accept,
                        _ => return Err(unknown(line)),
                    },
                    rules: Vec::new(),
                }),
                ["-A", chain, direction, interface, "-j", "ACCEPT"] => {
                    let direction = match direction {
                        "-i" => Direction::In,
                        "-o" => Direction::Out,
                        _ => return Err(unknown(line)),
                    };
                    let chain = chains.iter_mut().find(|known| known.name == chain);
                    let chain = chain.ok_or_else(|| unknown(line))?;
                    chain
                        .rules
                        .push(ChainRule::Accept(direction, interface.to_owned()));
                }
                _ => return Err(unknown(line)),
            }
        }
        Ok(Self(chains))
    }

    /// Sets the firewall atomically.
    pub(crate) fn apply(&self, family: IpFamily) -> io::Result<()> {
        match nf_tables::apply(self, family) {
            Err(error) if is_missing(&error) => ip_tables::apply(self, family).map_err(no_firewall),
            done => done,
        }
    }

    /// Reads the firewall from the kernel.
    pub(crate) fn read(family: IpFamily) -> io::Result<Self> {
        match nf_tables::read(family) {
            Err(error) if is_missing(&error) => ip_tables::read(family).map_err(no_firewall),
            read => read,
        }
    }

    /// Whether no rule is set and every packet is accepted.
    pub(crate) fn is_untouched(&self) -> bool {
        self.0
            .iter()
            .all(|chain| chain.policy == PacketAction::Accept && chain.rules.is_empty())
    }
}

impl fmt::Display for KernelFirewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*filter")?;
        for chain in &self.0 {
            let policy = match chain.policy {
                PacketAction::Drop => "DROP",
                PacketAction::Accept => "ACCEPT",
            };
            writeln!(f, ":{} {policy} [0:0]", chain.name)?;
        }
        for chain in &self.0 {
            for rule in &chain.rules {
                match rule {
                    ChainRule::Accept(direction, interface) => {
                        let flag = match direction {
                            Direction::In => "-i",
                            Direction::Out => "-o",
                        };
                        writeln!(f, "-A {} {flag} {interface} -j ACCEPT", chain.name)?;
                    }
                    ChainRule::Unknown => writeln!(f, "-A {} (unknown rule)", chain.name)?,
                }
            }
        }
        writeln!(f, "COMMIT")
    }
}

/// Whether the kernel has no `nf_tables`.
fn is_missing(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|errno| NO_NF_TABLES.contains(&errno))
}

/// The error of a kernel without `nf_tables` and without `ip_tables`.
fn no_firewall(error: io::Error) -> io::Error {
    // `ENOPROTOOPT` and `ENOENT`.
    const NO_IP_TABLES: [i32; 2] = [92, 2];
    match error.raw_os_error() {
        Some(errno) if NO_IP_TABLES.contains(&errno) => {
            io::Error::other("this kernel has neither nf_tables nor the older ip_tables")
        }
        _ => error,
    }
}

pub(super) fn unknown(line: &str) -> io::Error {
    io::Error::other(format!("unknown line in the firewall: {line}"))
}
