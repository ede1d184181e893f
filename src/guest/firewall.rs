//! The firewall of this network namespace: a small `iptables-restore` and `iptables-save` of its own.
//!
//! It is put in force by way of `nf_tables`, in the shape that `iptables` itself gives it, so that `iptables -S` shows it; and
//! where the kernel has none, by what `iptables` had before.

use std::fmt;
use std::io;

use super::{legacy, nf_tables};

/// What the system says where a part of the kernel is missing: no such protocol, no such operation, no such family; and the
/// answer to a request that nobody in the kernel takes.
const MISSING: [i32; 4] = [93, 95, 97, 22];

/// Where packets pass: the kernel's number and the name that `iptables` gives its chain.
pub(super) const HOOKS: [(u32, &str); 3] = [(1, "INPUT"), (2, "FORWARD"), (3, "OUTPUT")];

/// Which packets a firewall is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4 = 2,
    V6 = 10,
}

/// All chains of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Firewall(pub(super) Vec<Chain>);

/// What is done with packets at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) name: String,
    pub(super) policy: Fate,
    /// Each as `iptables` writes it behind the chain's name.
    pub(super) rules: Vec<Rule>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Drop,
    Accept,
}

/// What becomes of some of the packets at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Accepts what comes in from, or goes out to, an interface.
    Accept(Way, String),
    /// One that none of ours is.
    Strange,
}

/// Where a packet passes an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
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
        match nf_tables::apply(self, family) {
            Err(error) if is_missing(&error) => legacy::apply(self, family).map_err(neither),
            done => done,
        }
    }

    /// What is in force.
    pub(crate) fn read(family: Family) -> io::Result<Self> {
        match nf_tables::read(family) {
            Err(error) if is_missing(&error) => legacy::read(family).map_err(neither),
            read => read,
        }
    }

    /// Whether nobody has put anything in force: every packet passes.
    pub(crate) fn is_untouched(&self) -> bool {
        self.0
            .iter()
            .all(|chain| chain.policy == Fate::Accept && chain.rules.is_empty())
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

/// Whether this part of the kernel is not there.
fn is_missing(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|number| MISSING.contains(&number))
}

/// Why there is no firewall where `nf_tables` is missing.
fn neither(error: io::Error) -> io::Error {
    // No such protocol option, no such table.
    const NO_LEGACY: [i32; 2] = [92, 2];
    match error.raw_os_error() {
        Some(number) if NO_LEGACY.contains(&number) => {
            io::Error::other("this kernel has neither nf_tables nor the older ip_tables")
        }
        _ => error,
    }
}

pub(super) fn unknown(line: &str) -> io::Error {
    io::Error::other(format!("no such line of a firewall is known: {line}"))
}
