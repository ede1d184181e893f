//! Where this machine is, as seen from inside one of its own: the address that a gateway listens at.
//!
//! It is known only when a machine runs, and Softnet must be told before that. So the last one is written down and
//! guessed to be the next.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::super::SandboxError;
use super::super::machine::tool;
use super::cli::{Tart, command};
use crate::exec::Command;

/// Where this machine is on networks that macOS makes for virtual ones, as a rule.
const USUAL: Ipv4Addr = Ipv4Addr::new(192, 168, 64, 1);
/// The interface of this machine that most networks are reached by.
const FIRST_INTERFACE: &str = "en0";

/// What is known of the way from machines to this one.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    file: PathBuf,
}

impl Routes {
    /// What is written down in this directory.
    pub(super) fn kept_in(dir: &Path) -> Self {
        Self {
            file: dir.join("gateway"),
        }
    }

    /// The address that was found last, or the usual one.
    pub(super) fn remembered(&self) -> Ipv4Addr {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        address(&text).unwrap_or(USUAL)
    }

    /// The address by which a machine that runs reaches this one: its default route; where it does not tell, the address
    /// of this machine's first interface, or the usual one. It is written down.
    pub(super) async fn ask(&self, tart: &Tart, machine: &str) -> Result<Ipv4Addr, SandboxError> {
        let inside = command(["exec", machine, "route", "-n", "get", "default"]);
        let here = Command::new("ipconfig").args(["getifaddr", FIRST_INTERFACE]);
        let (_, told) = tool::try_run(&tart.host, inside).await?;
        let found = match gateway(&told.stdout.text()) {
            Some(address) => Some(address),
            None if tart.host.has_program("ipconfig") => {
                let (_, told) = tool::try_run(&tart.host, here).await?;
                address(&told.stdout.text())
            }
            None => None,
        };
        let found = found.unwrap_or(USUAL);
        // Whoever cannot write it down guesses again.
        if let Err(error) = fs::write(&self.file, found.to_string()) {
            tracing::debug!(%error, "the address of the gateway was not written down");
        }
        Ok(found)
    }
}

/// What `route -n get default` prints on a Mac.
fn gateway(text: &str) -> Option<Ipv4Addr> {
    let told = text.lines().find_map(|line| line.trim().strip_prefix("gateway:"));
    address(told?)
}

/// An address that one machine has. Who listens at any other is heard by more than the machine it listens for, and what
/// tells the address may be what the agent put there.
fn address(text: &str) -> Option<Ipv4Addr> {
    let found: Ipv4Addr = text.trim().parse().ok()?;
    let of_many = found.is_unspecified() || found.is_multicast() || found.is_broadcast();
    (!of_many && !found.is_loopback()).then_some(found)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_route(
        "   route to: default\ndestination: default\n       mask: default\n    gateway: 192.168.65.1\n  interface: en0\n",
        Some(Ipv4Addr::new(192, 168, 65, 1))
    )]
    #[case::another_machine_in_its_place("    gateway: link#4\n", None)]
    #[case::every_address_there_is("    gateway: 0.0.0.0\n", None)]
    #[case::nobody_elses("    gateway: 127.0.0.1\n", None)]
    #[case::none("route: writing to routing socket: not in table\n", None)]
    fn the_default_route_is_read(#[case] text: &str, #[case] expected: Option<Ipv4Addr>) {
        assert_eq!(gateway(text), expected);
    }

    #[test]
    fn what_was_found_last_is_guessed_next() {
        let dir = tempfile::tempdir().unwrap();
        let routes = Routes::kept_in(dir.path());
        assert_eq!(routes.remembered(), USUAL);
        fs::write(dir.path().join("gateway"), "10.1.2.3").unwrap();
        assert_eq!(routes.remembered(), Ipv4Addr::new(10, 1, 2, 3));
    }
}
