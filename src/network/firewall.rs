//! The second barrier around a sealed sandbox: the firewall of its network namespace.
//!
//! The first barrier is that the only interface is loopback, and every address behind it is the sandbox's own. If
//! another interface ever appears, this firewall drops its packets. `ralph network rules` prints this text, the holder
//! sets it, and ralph compares it with what the kernel reports.

/// The rules of a sealed network for IPv4 and IPv6 alike, as `iptables-save` prints them.
pub const SEALED: &str = "\
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT DROP [0:0]
-A INPUT -i lo -j ACCEPT
-A OUTPUT -o lo -j ACCEPT
COMMIT
";

/// What the holder of a sealed namespace reports: the interfaces that are up, where addresses lead, and the rules of each
/// address family. A kernel without IPv6 (`ipv6` is `false`) reports none for it.
#[must_use]
pub fn sealed_state(ipv6: bool) -> String {
    let state = format!("up lo\nlocal 0.0.0.0/0 dev lo\nipv4\n{SEALED}");
    if ipv6 {
        format!("{state}ipv6\n{SEALED}")
    } else {
        state
    }
}
