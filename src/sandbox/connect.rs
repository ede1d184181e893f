//! Chooses a provider by configuration.

use std::sync::Arc;

use super::daytona::{DaytonaOptions, DaytonaProvider};
use super::docker::{self, DockerOptions};
use super::docker_sandbox;
use super::local::{LocalOptions, LocalProvider};
use super::tart::{self, TartOptions};
use super::vm::VmOptions;
use super::{NetworkEnforcement, Provider, SandboxError};
use crate::network::{Policy, PolicyMode};

/// A provider and its options.
#[derive(Clone, Debug)]
pub enum ProviderChoice {
    /// Plain processes in a directory of the host.
    Local(LocalOptions),
    /// Containers of a Docker Engine.
    Docker(DockerOptions),
    /// VMs of Docker Sandboxes.
    DockerSandbox(VmOptions),
    /// VMs of Tart, on a Mac.
    Tart(TartOptions),
    /// Sandboxes in the cloud.
    Daytona(DaytonaOptions),
}

impl ProviderChoice {
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
    pub fn image_source(&self) -> ImageSource {
        match self {
            Self::Local(_) => ImageSource::Nothing,
            Self::Docker(_) | Self::DockerSandbox(_) => ImageSource::EngineImage,
            Self::Tart(_) | Self::Daytona(_) => ImageSource::NamedImage,
        }
    }
}

/// What sandboxes start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// The file system of the host.
    Nothing,
    /// An image of a container engine, which must exist before.
    EngineImage,
    /// An image or template that the provider finds by its name.
    NamedImage,
}

/// Creates the chosen provider. It does not connect to anything yet: see [`Provider::check`].
pub fn connect(choice: &ProviderChoice) -> Result<Arc<dyn Provider>, SandboxError> {
    Ok(match choice {
        ProviderChoice::Local(options) => Arc::new(LocalProvider::new(options.clone())),
        ProviderChoice::Docker(options) => Arc::new(docker::provider(options.clone())),
        ProviderChoice::DockerSandbox(options) => Arc::new(docker_sandbox::provider(options.clone())),
        ProviderChoice::Tart(options) => Arc::new(tart::provider(options.clone())),
        ProviderChoice::Daytona(options) => Arc::new(DaytonaProvider::new(options.clone())),
    })
}

/// Fails if the provider cannot enforce a policy.
pub fn check_policy(provider: &dyn Provider, policy: &Policy) -> Result<(), SandboxError> {
    let reason = match (provider.capabilities().network, policy.mode()) {
        (NetworkEnforcement::Names, _) => match provider.objection(policy) {
            Some(reason) => return Err(unenforceable(provider, reason)),
            None => return Ok(()),
        },
        (NetworkEnforcement::Cidrs | NetworkEnforcement::AllOrNothing, PolicyMode::Deny) => return Ok(()),
        (_, PolicyMode::AllowAll) if !policy.restricts() => return Ok(()),
        (_, PolicyMode::Record) => "it does not see which hosts are used, so nothing can be recorded",
        (NetworkEnforcement::Nothing, _) => "its commands can reach everything that the host can reach",
        (NetworkEnforcement::AllOrNothing, _) => "it can only allow or deny the whole network",
        (NetworkEnforcement::Cidrs, _) => "it can only restrict address ranges, not host names",
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

    fn local() -> ProviderChoice {
        ProviderChoice::Local(LocalOptions {
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
    fn local_rejects_every_restricting_policy(#[case] policy: Policy, #[case] taken: bool) {
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
    fn tart_rejects_tls_inspection() {
        let mac = ProviderChoice::Tart(TartOptions {
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
        assert!(refused.to_string().contains("cannot inspect TLS"), "{refused}");
    }

    #[test]
    fn local_says_that_it_isolates_nothing() {
        let notice = connect(&local()).unwrap().capabilities().notice();
        assert!(notice.is_some_and(|text| text.contains("has no isolation")));
    }
}
