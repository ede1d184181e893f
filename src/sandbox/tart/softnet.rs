//! Softnet restricts the network of a VM by address range. It knows neither names nor ports, so policies with names need
//! a gateway, which is then the only reachable address. Softnet must run as root.

use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;

use super::super::SandboxError;
use super::super::vm::{VmDriver, host_cli};
use super::TartDriver;
use crate::exec::{Command, Host};
use crate::network::{Policy, PolicyMode};

/// The set-user-ID bit.
const SET_USER: u32 = 0o4000;

/// How a policy is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SoftnetMode {
    /// There is nothing to enforce.
    Open,
    /// The VM has no network.
    Blocked,
    /// The VM reaches only a gateway.
    Gateway,
}

impl SoftnetMode {
    pub(super) fn new(policy: &Policy) -> Self {
        match policy.mode {
            PolicyMode::Deny => Self::Blocked,
            PolicyMode::AllowAll if !policy.restricts() => Self::Open,
            PolicyMode::AllowAll | PolicyMode::Allowlist | PolicyMode::Record => Self::Gateway,
        }
    }

    /// The arguments of `tart run`, for a gateway at this address.
    pub(super) fn flags(self, gateway: Ipv4Addr) -> Vec<String> {
        let block = ["--net-softnet", "--net-softnet-block=0.0.0.0/0"].map(str::to_owned);
        let allow = format!("--net-softnet-allow={gateway}/32");
        match self {
            Self::Open => Vec::new(),
            Self::Blocked => block.to_vec(),
            Self::Gateway => block.into_iter().chain([allow]).collect(),
        }
    }
}

/// Fails if Softnet is not installed, or cannot become root without a password.
pub(super) async fn check(host: &Host) -> Result<(), SandboxError> {
    let Some(program) = host.find_program("softnet") else {
        return Err(unsupported(
            "softnet is not installed",
            "install it with `brew install cirruslabs/cli/softnet`",
        ));
    };
    let is_root = program
        .metadata()
        .is_ok_and(|file| file.mode() & SET_USER != 0 && file.uid() == 0);
    if is_root {
        return Ok(());
    }
    let sudo = Command::new("sudo").args(["--non-interactive", "softnet", "--help"]);
    match host_cli::try_run(host, sudo).await {
        Ok(exit) if exit.success() => Ok(()),
        Ok(_) | Err(_) => Err(unsupported(
            "softnet must run as root, and sudo asks for a password",
            "run `sudo chown root $(which softnet) && sudo chmod u+s $(which softnet)`",
        )),
    }
}

fn unsupported(reason: &str, hint: &'static str) -> SandboxError {
    SandboxError::unsupported(TartDriver::NAME, "restrict the network of a VM", reason).with_hint(Some(hint))
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
    #[case::allow_all(Policy::allow_all(), SoftnetMode::Open)]
    #[case::deny(Policy::deny(), SoftnetMode::Blocked)]
    #[case::allowlist(Policy::allowlist(rule()), SoftnetMode::Gateway)]
    #[case::one_denied(Policy::allow_all().denying(rule()), SoftnetMode::Gateway)]
    #[case::record(Policy::record(), SoftnetMode::Gateway)]
    fn policies_about_names_need_a_gateway(#[case] policy: Policy, #[case] expected: SoftnetMode) {
        assert_eq!(SoftnetMode::new(&policy), expected);
    }

    #[test]
    fn the_gateway_is_the_only_allowed_address() {
        let flags = SoftnetMode::Gateway.flags(Ipv4Addr::new(192, 168, 64, 1));
        let expected = [
            "--net-softnet",
            "--net-softnet-block=0.0.0.0/0",
            "--net-softnet-allow=192.168.64.1/32",
        ];
        assert_eq!(flags, expected);
    }
}
