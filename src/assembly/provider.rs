//! Chooses and connects the provider.

use std::path::Path;
use std::sync::Arc;

use crate::config::{Config, ConfigLayer, OnUnenforceable, SandboxType, SealSetting, WorkspaceSetting};
use crate::network::{PackageConfig, Policy};
use crate::sandbox::daytona::{
    DaytonaOptions, DaytonaPrices, DaytonaProgress, DaytonaProvider, DaytonaSecret,
};
use crate::sandbox::docker::{self, DockerOptions, SealChoice, WorkspaceChoice};
use crate::sandbox::docker_sandbox;
use crate::sandbox::local::{LocalOptions, LocalProvider};
use crate::sandbox::tart::{self, TartOptions};
use crate::sandbox::vm::VmOptions;
use crate::sandbox::{ImageRecords, Provider, SandboxError, check_policy};
use crate::scm::main_worktree;

use super::configuration::project_dir;
use super::error::io_error;
use super::{AssemblyContext, AssemblyError, ErrorTopic, Surroundings};

/// What sandboxes start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageSource {
    /// The file system of the host.
    Nothing,
    /// An image of a container engine, which must exist before.
    EngineImage,
    /// An image or template that the provider finds by its name.
    NamedImage,
    /// The planned image, from `sandbox.registry`.
    RegistryImage,
    /// The planned image, built by the provider from a Dockerfile.
    SentDockerfile,
}

/// The provider, checked to enforce the configured policy.
pub(crate) fn create_checked_provider(
    context: &AssemblyContext,
    config: &Config,
) -> Result<Arc<dyn Provider>, AssemblyError> {
    let provider = create_provider(context, config)?;
    match check_policy(provider.as_ref(), &config.network_policy(&PackageConfig::EMPTY)) {
        Err(error) if !may_ignore_policy(config) => Err(unenforceable(error)),
        _ => Ok(provider),
    }
}

/// The provider, whether it enforces the policy or not.
pub(crate) fn create_provider(
    context: &AssemblyContext,
    config: &Config,
) -> Result<Arc<dyn Provider>, AssemblyError> {
    create_provider_with(context, config, Vec::new())
}

/// The provider with the secrets that it stores.
pub(crate) fn create_provider_with(
    context: &AssemblyContext,
    config: &Config,
    secrets: Vec<DaytonaSecret>,
) -> Result<Arc<dyn Provider>, AssemblyError> {
    if let Some(provider) = &context.provider {
        return Ok(provider.clone());
    }
    let surroundings = &context.surroundings;
    Ok(match config.provider() {
        SandboxType::Local => Arc::new(LocalProvider::new(LocalOptions {
            base: surroundings.runs()?.dir().to_owned(),
            path: surroundings.var("PATH").unwrap_or("/usr/bin:/bin").to_owned(),
            passthrough: config.passthrough(),
        })),
        SandboxType::Docker => Arc::new(docker::provider(docker_options(surroundings, config)?)),
        SandboxType::DockerSandbox => {
            let options = vm_options(surroundings, "docker-sandboxes")?;
            Arc::new(docker_sandbox::provider(options))
        }
        SandboxType::Tart => Arc::new(tart::provider(tart_options(surroundings, config)?)),
        SandboxType::Daytona => {
            let mut options = daytona_options(context, config)?;
            options.secrets = secrets;
            Arc::new(DaytonaProvider::new(options))
        }
    })
}

/// The provider `daytona`, for what only it can do.
pub(crate) fn daytona_provider(
    context: &AssemblyContext,
    config: &Config,
) -> Result<DaytonaProvider, AssemblyError> {
    Ok(DaytonaProvider::new(daytona_options(context, config)?))
}

/// What sandboxes of the provider start from. A provider of your own gets the configured image name as it is.
pub(crate) fn image_source(context: &AssemblyContext, config: &Config) -> ImageSource {
    let sandbox = &config.settings.sandbox;
    match config.provider() {
        _ if context.provider.is_some() => ImageSource::NamedImage,
        SandboxType::Local => ImageSource::Nothing,
        SandboxType::Docker | SandboxType::DockerSandbox => ImageSource::EngineImage,
        SandboxType::Tart => ImageSource::NamedImage,
        SandboxType::Daytona if sandbox.image.is_some() || sandbox.daytona.dockerfile.is_some() => {
            ImageSource::NamedImage
        }
        SandboxType::Daytona if sandbox.registry.is_some() => ImageSource::RegistryImage,
        SandboxType::Daytona => ImageSource::SentDockerfile,
    }
}

/// The options of the `docker` provider.
pub(crate) fn docker_options(
    surroundings: &Surroundings,
    config: &Config,
) -> Result<DockerOptions, AssemblyError> {
    Ok(DockerOptions {
        seal: match config.settings.sandbox.docker.seal {
            SealSetting::Auto => SealChoice::Auto,
            SealSetting::Handed => SealChoice::Handed,
            SealSetting::Relayed => SealChoice::Relayed,
        },
        runtime: config.settings.sandbox.docker.runtime.clone(),
        workspace: match config.settings.sandbox.docker.workspace {
            WorkspaceSetting::Auto => WorkspaceChoice::Auto,
            WorkspaceSetting::Shared => WorkspaceChoice::Shared,
            WorkspaceSetting::Volume => WorkspaceChoice::Volume,
        },
        base: surroundings.data_dir()?.join("sandboxes"),
        engine: surroundings.engine(),
        guest_dir: surroundings.data_dir()?.join("guest"),
        cache: surroundings.cache_dir()?.join("image-files"),
        host: surroundings.host(),
        host_name: surroundings.owner().host,
        clock: surroundings.clock(),
    })
}

/// The options that the providers of VMs share.
fn vm_options(surroundings: &Surroundings, dir: &str) -> Result<VmOptions, AssemblyError> {
    Ok(VmOptions {
        base: surroundings.data_dir()?.join(dir),
        guest_dir: surroundings.data_dir()?.join("guest"),
        host: surroundings.vm_host(),
        host_name: surroundings.owner().host,
    })
}

fn tart_options(surroundings: &Surroundings, config: &Config) -> Result<TartOptions, AssemblyError> {
    let project = main_worktree(&project_dir(surroundings.dir()));
    Ok(TartOptions {
        vm: vm_options(surroundings, "tart")?,
        dependencies: dependency_script(&project.join(".agent-loop"))?,
        project,
        boot_timeout: config.settings.timers.boot,
    })
}

/// The script that installs the dependencies in a VM: `dependencies.sh` or else `dependencies`. Empty if there is neither.
fn dependency_script(dir: &Path) -> Result<String, AssemblyError> {
    for name in ["dependencies.sh", "dependencies"] {
        let script = dir.join(name);
        match std::fs::read_to_string(&script) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            read => return read.map_err(io_error("read", &script)),
        }
    }
    Ok(String::new())
}

fn daytona_options(context: &AssemblyContext, config: &Config) -> Result<DaytonaOptions, AssemblyError> {
    let (surroundings, settings) = (&context.surroundings, &config.settings.sandbox.daytona);
    let url = surroundings
        .var("DAYTONA_API_URL")
        .unwrap_or(DaytonaOptions::API_URL);
    let dockerfile = settings.dockerfile.as_ref().map(|name| {
        if config.settings.sandbox.image.is_some() {
            return Err(AssemblyError::usage(
                "`sandbox.image` and `sandbox.daytona.dockerfile` are both set; a sandbox starts from one of them",
            ).with_topic(ErrorTopic::Configuration));
        }
        let path = project_dir(surroundings.dir()).join(name);
        std::fs::read_to_string(&path).map_err(io_error("read", &path))
    });
    let reporter = context.reporter.clone();
    Ok(DaytonaOptions {
        progress: DaytonaProgress::new(move |what| reporter.inform(&format!("  waiting: {what}"))),
        records: Some(ImageRecords::of_snapshots(
            surroundings.data_dir()?.join("daytona"),
            main_worktree(&project_dir(surroundings.dir())),
        )),
        data_dir: surroundings.data_dir()?,
        target: surroundings.var("DAYTONA_TARGET").map(ToOwned::to_owned),
        dockerfile: dockerfile.transpose()?,
        prices: DaytonaPrices {
            cpu_hour: settings.usd_per_cpu_hour,
            memory_gb_hour: settings.usd_per_memory_gb_hour,
            disk_gb_hour: settings.usd_per_disk_gb_hour,
        },
        ..DaytonaOptions::new(
            url,
            config.credential("DAYTONA_API_KEY"),
            surroundings.owner().host,
            surroundings.clock(),
        )
    })
}

/// The policy, or, where the configuration permits it, no policy in place of one that the provider cannot enforce.
pub(crate) fn enforceable(
    context: &AssemblyContext,
    config: &Config,
    provider: &dyn Provider,
    policy: Policy,
) -> Result<Policy, AssemblyError> {
    match check_policy(provider, &policy) {
        Ok(()) => Ok(policy),
        Err(error) if may_ignore_policy(config) => {
            context
                .reporter
                .warn(&format!("{error}: the network policy is not enforced"));
            Ok(Policy::allow_all())
        }
        Err(error) => Err(unenforceable(error)),
    }
}

/// The default policy may give way to the chosen provider. A configured one may not, unless `on_unenforceable` says so.
fn may_ignore_policy(config: &Config) -> bool {
    let configured = config
        .origin("sandbox.network.policy")
        .is_some_and(|origin| origin.layer != ConfigLayer::Default);
    config.settings.sandbox.network.on_unenforceable == OnUnenforceable::Warn || !configured
}

fn unenforceable(error: SandboxError) -> AssemblyError {
    AssemblyError::from(error).with_topic(ErrorTopic::Network).with_hint(
        "choose another provider, or set sandbox.network.policy = \"allow-all\" or on_unenforceable = \"warn\"",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;
    use crate::assembly::SilentReporter;
    use crate::config::{self, ConfigInputs, ConfigOverride, SettingPlace};
    use crate::sandbox::CredentialRoute;

    #[rstest]
    #[case::local("local", CredentialRoute::Loopback, CredentialRoute::Loopback)]
    #[case::docker("docker", CredentialRoute::Gateway, CredentialRoute::None)]
    #[case::tart("tart", CredentialRoute::Gateway, CredentialRoute::None)]
    #[case::docker_sandbox("docker-sandbox", CredentialRoute::ProxiedLoopback, CredentialRoute::None)]
    #[case::daytona("daytona", CredentialRoute::Provider, CredentialRoute::Provider)]
    fn every_provider_has_a_credential_route_under_a_policy_that_restricts(
        #[case] name: &str,
        #[case] restricted: CredentialRoute,
        #[case] open: CredentialRoute,
    ) {
        let given = |key: &str, value: &str| ConfigOverride {
            key: key.to_owned(),
            value: value.to_owned(),
            place: SettingPlace::Flag(key.to_owned()),
        };
        let config = config::load(&ConfigInputs {
            flags: vec![given("sandbox.type", name), given("sandbox.image", "an-image")],
            ..ConfigInputs::default()
        });
        let env = BTreeMap::from([("RALPH_HOME".to_owned(), "/nowhere".to_owned())]);
        let context = AssemblyContext::new(Surroundings::new(env, "/nowhere"), Arc::new(SilentReporter));
        let provider = create_provider(&context, &config.unwrap()).unwrap();
        let route = provider.capabilities().credentials;
        assert_eq!(route.under(&Policy::deny()), restricted);
        assert_eq!(route.under(&Policy::allow_all()), open);
    }
}
