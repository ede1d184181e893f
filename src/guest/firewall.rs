//! The firewall of this network namespace. It drops every packet that is not on the loopback interface.
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

/// The netfilter hooks that have a chain.
pub(super) const HOOKS: [Hook; 3] = [
    Hook::new(1, "INPUT", Some(Direction::In)),
    Hook::new(2, "FORWARD", None),
    Hook::new(3, "OUTPUT", Some(Direction::Out)),
];

/// The interface whose packets are accepted.
pub(super) const LOOPBACK: &str = "lo";

/// A netfilter hook and its chain.
pub(super) struct Hook {
    /// The kernel's number.
    pub(super) number: u32,
    /// The name of `iptables`.
    pub(super) chain: &'static str,
    /// The loopback packets that a rule accepts.
    pub(super) accepts: Option<Direction>,
}

impl Hook {
    const fn new(number: u32, chain: &'static str, accepts: Option<Direction>) -> Self {
        Self {
            number,
            chain,
            accepts,
        }
    }
}

/// All chains of one IP family, as the kernel reports them.
#[derive(Debug)]
pub(crate) struct KernelFirewall(pub(super) Vec<KernelChain>);

/// The rules at one hook.
#[derive(Debug)]
pub(super) struct KernelChain {
    pub(super) name: String,
    pub(super) policy: PacketAction,
    /// The loopback packets that each rule accepts; `None` for any rule that ralph does not set.
    pub(super) rules: Vec<Option<Direction>>,
}

/// What happens to a packet. The values are the kernel's `NF_DROP` and `NF_ACCEPT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketAction {
    Drop = 0,
    Accept = 1,
}

/// Whether a packet enters or leaves through an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

impl Direction {
    pub(super) const BOTH: [Self; 2] = [Self::In, Self::Out];
}

impl KernelFirewall {
    /// Sets the firewall atomically. `policy` is what happens to packets that are not on the loopback interface.
    pub(crate) fn apply(policy: PacketAction, family: IpFamily) -> io::Result<()> {
        match nf_tables::apply(policy, family) {
            Err(error) if is_missing(&error) => ip_tables::apply(policy, family).map_err(no_firewall),
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

/// The format of `iptables-save`.
impl fmt::Display for KernelFirewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*filter")?;
        for KernelChain { name, policy, .. } in &self.0 {
            let policy = match policy {
                PacketAction::Drop => "DROP",
                PacketAction::Accept => "ACCEPT",
            };
            writeln!(f, ":{name} {policy} [0:0]")?;
        }
        for KernelChain { name, rules, .. } in &self.0 {
            for rule in rules {
                match rule {
                    Some(Direction::In) => writeln!(f, "-A {name} -i {LOOPBACK} -j ACCEPT")?,
                    Some(Direction::Out) => writeln!(f, "-A {name} -o {LOOPBACK} -j ACCEPT")?,
                    None => writeln!(f, "-A {name} (unknown rule)")?,
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
