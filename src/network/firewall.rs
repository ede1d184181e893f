//! The second wall around a sealed sandbox: the firewall of its network namespace, as data.
//!
//! The first is that there is nothing to reach: no interface but loopback, behind which every address is the sandbox's
//! own. Should an interface appear, no packet passes it. What is written here is printed for people, set by the holder, and
//! read back from the kernel and compared.

use std::fmt;

/// What a sealed network must look like, to the holder that sets it and tells of it.
pub const SEALED: Firewall = Firewall {
    chains: &[
        Chain {
            hook: Hook::Input,
            policy: Target::Drop,
            rules: &[FirewallRule {
                interface: "lo",
                target: Target::Accept,
            }],
        },
        Chain {
            hook: Hook::Forward,
            policy: Target::Drop,
            rules: &[],
        },
        Chain {
            hook: Hook::Output,
            policy: Target::Drop,
            rules: &[FirewallRule {
                interface: "lo",
                target: Target::Accept,
            }],
        },
    ],
};

/// The chains of one namespace, for IPv4 and IPv6 alike. It prints as `iptables-save` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firewall {
    /// What is done with packets, by where they pass.
    pub chains: &'static [Chain],
}

/// What is done with packets at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The place.
    pub hook: Hook,
    /// What becomes of packets that no rule is about.
    pub policy: Target,
    /// The first that fits decides.
    pub rules: &'static [FirewallRule],
}

/// A line about packets of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirewallRule {
    /// Where they come from, or go to where they are sent.
    pub interface: &'static str,
    /// What becomes of them.
    pub target: Target,
}

/// Where packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// On their way in.
    Input,
    /// On their way through.
    Forward,
    /// On their way out.
    Output,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It passes.
    Accept,
    /// It does not.
    Drop,
}

impl Firewall {
    /// What the holder of a namespace with this firewall tells of it: the interfaces that are up, where addresses lead,
    /// and the chains of each family. `None` of IPv6 where the kernel has none.
    #[must_use]
    pub fn expected_state(&self, ipv6: Ipv6) -> String {
        let four = format!("up lo\nlocal 0.0.0.0/0 dev lo\nipv4\n{self}");
        match ipv6 {
            Ipv6::Known => format!("{four}ipv6\n{self}"),
            Ipv6::Unknown => four,
        }
    }
}

/// Whether a kernel knows IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6 {
    /// It does.
    Known,
    /// It does not, so that nothing can go that way.
    Unknown,
}

impl fmt::Display for Firewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*filter")?;
        for chain in self.chains {
            writeln!(f, ":{} {} [0:0]", chain.hook, chain.policy)?;
        }
        for chain in self.chains {
            for rule in chain.rules {
                let way = match chain.hook {
                    Hook::Input | Hook::Forward => "-i",
                    Hook::Output => "-o",
                };
                let FirewallRule { interface, target } = rule;
                writeln!(f, "-A {} {way} {interface} -j {target}", chain.hook)?;
            }
        }
        writeln!(f, "COMMIT")
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_loopback_is_dropped() {
        assert_eq!(
            SEALED.to_string(),
            "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT DROP [0:0]\n\
             -A INPUT -i lo -j ACCEPT\n-A OUTPUT -o lo -j ACCEPT\nCOMMIT\n"
        );
    }
}
