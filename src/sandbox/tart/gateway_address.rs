//! The address of the host as seen from inside a VM, at which the gateway listens.
//!
//! It is known only when a VM runs, but Softnet needs it before that. So the last address is stored and used as a guess.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::super::SandboxError;
use super::super::vm::host_cli;
use super::cli::{Tart, command};
use crate::exec::Command;

/// The default address of the host on the virtual networks of macOS.
const DEFAULT: Ipv4Addr = Ipv4Addr::new(192, 168, 64, 1);
/// The first network interface of a Mac.
const FIRST_INTERFACE: &str = "en0";

/// The stored address of the host.
#[derive(Clone, Debug)]
pub(super) struct GatewayAddress {
    file: PathBuf,
}

impl GatewayAddress {
    /// The address that is stored in this directory.
    pub(super) fn stored_in(dir: &Path) -> Self {
        Self {
            file: dir.join("gateway"),
        }
    }

    /// The address that was found last, or the default.
    pub(super) fn guess(&self) -> Ipv4Addr {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        parse_address(&text).unwrap_or(DEFAULT)
    }

    /// Finds and stores the address at which a running VM reaches the host: its default route, or else the address of the
    /// host's first interface, or else the default.
    pub(super) async fn find(&self, tart: &Tart, vm: &str) -> Result<Ipv4Addr, SandboxError> {
        let in_vm = command(["exec", vm, "route", "-n", "get", "default"]);
        let on_host = Command::new("ipconfig").args(["getifaddr", FIRST_INTERFACE]);
        let exit = host_cli::try_run(&tart.host, in_vm).await?;
        let found = match parse_route(&exit.stdout.text()) {
            Some(address) => Some(address),
            None if tart.host.has_program("ipconfig") => {
                let exit = host_cli::try_run(&tart.host, on_host).await?;
                parse_address(&exit.stdout.text())
            }
            None => None,
        };
        let found = found.unwrap_or(DEFAULT);
        // Without the file, the next guess is the default.
        if let Err(error) = fs::write(&self.file, found.to_string()) {
            tracing::debug!(%error, "cannot store the address of the gateway");
        }
        Ok(found)
    }
}

/// Parses the output of `route -n get default` on macOS.
fn parse_route(text: &str) -> Option<Ipv4Addr> {
    let gateway = text.lines().find_map(|line| line.trim().strip_prefix("gateway:"));
    parse_address(gateway?)
}

/// A unicast address that is not loopback. The gateway must not listen at any other, and the text may come from the agent.
fn parse_address(text: &str) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = text.trim().parse().ok()?;
    let unicast = !(address.is_unspecified() || address.is_multicast() || address.is_broadcast());
    (unicast && !address.is_loopback()).then_some(address)
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
    #[case::an_interface("    gateway: link#4\n", None)]
    #[case::unspecified("    gateway: 0.0.0.0\n", None)]
    #[case::loopback("    gateway: 127.0.0.1\n", None)]
    #[case::none("route: writing to routing socket: not in table\n", None)]
    fn the_default_route_is_parsed(#[case] text: &str, #[case] expected: Option<Ipv4Addr>) {
        assert_eq!(parse_route(text), expected);
    }

    #[test]
    fn the_last_address_is_the_next_guess() {
        let dir = tempfile::tempdir().unwrap();
        let address = GatewayAddress::stored_in(dir.path());
        assert_eq!(address.guess(), DEFAULT);
        fs::write(dir.path().join("gateway"), "10.1.2.3").unwrap();
        assert_eq!(address.guess(), Ipv4Addr::new(10, 1, 2, 3));
    }
}
