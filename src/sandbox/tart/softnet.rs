//! Softnet: what keeps a machine from the network, and needs to be root for that. It knows address ranges, and neither
//! names nor ports: names are told apart by a gateway, which is then the one address that is left.

use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

use super::super::SandboxError;
use super::super::machine::Driver;
use super::super::machine::tool;
use super::Macs;
use crate::exec::{Command, Host};
use crate::network::{Policy, PolicyMode};

/// The bit that makes a program run as its owner.
const SET_USER: u32 = 0o4000;

/// How a policy is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// There is nothing to enforce.
    Open,
    /// There is no network.
    Shut,
    /// There is a gateway, and nothing else.
    Gateway,
}

impl Closing {
    pub(super) fn of(policy: &Policy) -> Self {
        match policy.mode() {
            PolicyMode::Deny => Self::Shut,
            PolicyMode::AllowAll if !policy.restricts() => Self::Open,
            PolicyMode::AllowAll | PolicyMode::Allowlist | PolicyMode::Record => Self::Gateway,
        }
    }
}

/// What a machine may reach by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Everything,
    Nothing,
    Only(Ipv4Addr),
}

impl Reach {
    /// What `tart run` is told.
    pub(super) fn flags(self) -> Vec<String> {
        let closed = ["--net-softnet", "--net-softnet-block=0.0.0.0/0"].map(str::to_owned);
        match self {
            Self::Everything => Vec::new(),
            Self::Nothing => closed.to_vec(),
            Self::Only(address) => {
                let allowed = format!("--net-softnet-allow={address}/32");
                closed.into_iter().chain([allowed]).collect()
            }
        }
    }
}

/// Whether Softnet can be used without asking anybody.
pub(super) async fn check(host: &Host) -> Result<(), SandboxError> {
    let Some(program) = host.find_program("softnet") else {
        return Err(refused(
            "softnet is not installed: `brew install cirruslabs/cli/softnet`",
        ));
    };
    let is_root = program
        .metadata()
        .is_ok_and(|file| file.mode() & SET_USER != 0 && file.uid() == 0);
    if is_root {
        return Ok(());
    }
    let sudo = Command::new("sudo").args(["--non-interactive", "softnet", "--help"]);
    match tool::try_run(host, sudo).await {
        Ok((_, exit)) if exit.success() => Ok(()),
        Ok(_) | Err(_) => Err(refused(
            "softnet must be root, and there is nobody to ask: `sudo chown root $(which softnet) && sudo chmod u+s \
             $(which softnet)`",
        )),
    }
}

fn refused(reason: &str) -> SandboxError {
    SandboxError::unsupported(Macs::NAME, "keep a machine from the network", reason)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::network::PolicyRule;

    fn rule() -> [PolicyRule; 1] {
        [PolicyRule::parse("github.com").unwrap()]
    }

    #[rstest]
    #[case::nothing_is_asked(Policy::allow_all(), Closing::Open)]
    #[case::everything_is_denied(Policy::deny(), Closing::Shut)]
    #[case::names_are_listed(Policy::allowlist(rule()), Closing::Gateway)]
    #[case::one_is_denied(Policy::allow_all().denying(rule()), Closing::Gateway)]
    #[case::names_are_written_down(Policy::record(), Closing::Gateway)]
    fn whatever_is_about_names_takes_a_gateway(#[case] policy: Policy, #[case] expected: Closing) {
        assert_eq!(Closing::of(&policy), expected);
    }

    #[test]
    fn the_gateway_is_the_one_address_that_is_left() {
        let flags = Reach::Only(Ipv4Addr::new(192, 168, 64, 1)).flags();
        let expected = [
            "--net-softnet",
            "--net-softnet-block=0.0.0.0/0",
            "--net-softnet-allow=192.168.64.1/32",
        ];
        assert_eq!(flags, expected);
    }
}
