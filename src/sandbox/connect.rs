//! Chooses a provider. Nothing else does.

use std::sync::Arc;

use super::daytona::{DaytonaOptions, DaytonaProvider};
use super::docker::{DockerOptions, DockerProvider};
use super::docker_sandbox;
use super::local::{LocalOptions, LocalProvider};
use super::tart::{self, TartOptions};
use super::vm::VmOptions;
use super::{NetworkEnforcement, Provider, SandboxError};
use crate::network::{Policy, PolicyMode};

/// Which provider to use, with what it needs to know.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Plain processes in a directory of the host.
    Local(LocalOptions),
    /// Containers of a Docker Engine.
    Docker(DockerOptions),
    /// Docker's own sandboxes.
    DockerSandbox(VmOptions),
    /// Virtual machines on a Mac.
    Tart(TartOptions),
    /// Sandboxes in the cloud.
    Daytona(DaytonaOptions),
}

impl Choice {
    /// The name used in `sandbox.type`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Docker(_) => "docker",
            Self::DockerSandbox(_) => "docker-sandbox",
            Self::Tart(_) => "tart",
            Self::Daytona(_) => "daytona",
        }
    }

    /// What its sandboxes start from.
    #[must_use]
    pub fn ground(&self) -> Ground {
        match self {
            Self::Local(_) => Ground::Nothing,
            Self::Docker(_) | Self::DockerSandbox(_) => Ground::EngineImage,
            Self::Tart(_) | Self::Daytona(_) => Ground::NamedImage,
        }
    }
}

/// What sandboxes start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// What is there.
    Nothing,
    /// An image of a container engine, which must be there first.
    EngineImage,
    /// An image that the provider finds by its name.
    NamedImage,
}

/// The provider that was chosen. Whether it can be used here it says when that is needed: [`Provider::check`].
pub fn connect(choice: &Choice) -> Result<Arc<dyn Provider>, SandboxError> {
    Ok(match choice {
        Choice::Local(options) => Arc::new(LocalProvider::new(options.clone())),
        Choice::Docker(options) => Arc::new(DockerProvider::new(options.clone())),
        Choice::DockerSandbox(options) => Arc::new(docker_sandbox::provider(options.clone())),
        Choice::Tart(options) => Arc::new(tart::provider(options.clone())),
        Choice::Daytona(options) => Arc::new(DaytonaProvider::new(options.clone())),
    })
}

/// Refuses a policy that the provider cannot enforce. Whether that ends the run is the user's choice.
pub fn check_policy(provider: &dyn Provider, policy: &Policy) -> Result<(), SandboxError> {
    let reason = match (provider.capabilities().network, policy.mode()) {
        (NetworkEnforcement::Names, _) => match provider.objection(policy) {
            Some(reason) => return Err(unenforceable(provider, reason)),
            None => return Ok(()),
        },
        (NetworkEnforcement::Cidrs | NetworkEnforcement::AllOrNothing, PolicyMode::Deny) => return Ok(()),
        (_, PolicyMode::AllowAll) if !policy.restricts() => return Ok(()),
        (_, PolicyMode::Record) => "it does not see which names are used, so there is nothing to record",
        (NetworkEnforcement::Nothing, _) => "its commands reach whatever this machine reaches",
        (NetworkEnforcement::AllOrNothing, _) => {
            "it can open the network or close it, and tells no names apart"
        }
        (NetworkEnforcement::Cidrs, _) => "it knows address ranges, not names",
    };
    Err(unenforceable(provider, reason.to_owned()))
}

fn unenforceable(provider: &dyn Provider, reason: String) -> SandboxError {
    SandboxError::unsupported(provider.name(), "enforce the network policy", reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::super::SandboxErrorKind;
    use super::*;
    use crate::exec::Host;
    use crate::network::{HostPattern, PolicyRule};

    fn local() -> Choice {
        Choice::Local(LocalOptions {
            base: "/nowhere".into(),
            path: "/usr/bin:/bin".to_owned(),
            passthrough: BTreeMap::new(),
        })
    }

    #[test]
    fn a_provider_has_the_name_it_was_chosen_by() {
        assert_eq!(connect(&local()).unwrap().name(), local().name());
    }

    #[rstest]
    #[case::nothing_asked(Policy::allow_all(), true)]
    #[case::names_asked(Policy::allowlist([PolicyRule::parse("github.com").unwrap()]), false)]
    #[case::an_empty_list(Policy::allowlist([]), false)]
    #[case::all_denied(Policy::deny(), false)]
    #[case::one_denied(Policy::allow_all().denying([PolicyRule::parse("github.com").unwrap()]), false)]
    #[case::all_recorded(Policy::record(), false)]
    fn local_refuses_every_policy_that_restricts(#[case] policy: Policy, #[case] taken: bool) {
        let provider = connect(&local()).unwrap();
        match check_policy(provider.as_ref(), &policy) {
            Ok(()) => assert!(taken, "{policy:?} was taken"),
            Err(error) => {
                assert_eq!(error.kind(), SandboxErrorKind::Unsupported);
                assert!(!taken && error.to_string().contains("`local`"), "{error}");
            }
        }
    }

    #[test]
    fn a_mac_refuses_to_have_tls_opened() {
        let mac = Choice::Tart(TartOptions {
            vm: VmOptions {
                base: "/nowhere".into(),
                guest_dir: "/nowhere".into(),
                host: Host::new(BTreeMap::new()),
                host_name: "test".to_owned(),
            },
            dependencies: String::new(),
            boot_timeout: TartOptions::BOOT_TIMEOUT,
        });
        let provider = connect(&mac).unwrap();
        let names = Policy::allowlist([PolicyRule::parse("github.com").unwrap()]);
        assert!(check_policy(provider.as_ref(), &names).is_ok());
        let opened = names.inspecting([HostPattern::parse("github.com").unwrap()]);
        let refused = check_policy(provider.as_ref(), &opened).unwrap_err();
        assert!(refused.to_string().contains("opens no TLS"), "{refused}");
    }

    #[test]
    fn local_says_that_it_isolates_nothing() {
        let notice = connect(&local()).unwrap().capabilities().notice();
        assert!(notice.is_some_and(|text| text.contains("isolates nothing but the directory")));
    }
}
