//! Chooses and connects the provider.

use std::sync::Arc;

use crate::config::{AgentName, Config, Layer, OnUnenforceable, SandboxType};
use crate::network::{PackageConfig, Policy};
use crate::sandbox::connect::{Choice, check_policy, connect};
use crate::sandbox::daytona::{DaytonaOptions, DaytonaPrices, Waiting};
use crate::sandbox::docker::DockerOptions;
use crate::sandbox::docker_sandbox::DockerSandboxOptions;
use crate::sandbox::local::LocalOptions;
use crate::sandbox::machine::MachineOptions;
use crate::sandbox::tart::TartOptions;
use crate::sandbox::{Provider, SandboxError};

use super::broker::Brokered;
use super::configuration::project_dir;
use super::error::io;
use super::{AssemblyContext, AssemblyError, agents};

/// The provider, once it is sure that it can enforce what is asked of it.
pub(crate) fn provider(
    context: &AssemblyContext,
    config: &Config,
) -> Result<Arc<dyn Provider>, AssemblyError> {
    let provider = connected(context, config)?;
    match check_policy(provider.as_ref(), &config.network_policy(&PackageConfig::EMPTY)) {
        Err(error) if !may_go_on(config) => Err(unenforceable(error)),
        _ => Ok(provider),
    }
}

/// The provider, whatever it can enforce.
pub(crate) fn connected(
    context: &AssemblyContext,
    config: &Config,
) -> Result<Arc<dyn Provider>, AssemblyError> {
    Ok(connect(&choice(context, config)?)?)
}

/// The same, with the credentials that it keeps.
pub(crate) fn connected_with(
    context: &AssemblyContext,
    config: &Config,
    brokered: Option<&Brokered>,
) -> Result<Arc<dyn Provider>, AssemblyError> {
    let choice = match (choice(context, config)?, brokered) {
        (Choice::Daytona(options), Some(brokered)) => Choice::Daytona(DaytonaOptions {
            secrets: brokered.handed_over.clone(),
            ..options
        }),
        (other, _) => other,
    };
    Ok(connect(&choice)?)
}

/// Which provider is meant.
pub(crate) fn choice(context: &AssemblyContext, config: &Config) -> Result<Choice, AssemblyError> {
    Ok(match config.provider() {
        SandboxType::Local => Choice::Local(LocalOptions {
            base: context.surroundings.runs()?.dir().to_owned(),
            path: context
                .surroundings
                .var("PATH")
                .unwrap_or("/usr/bin:/bin")
                .to_owned(),
            passthrough: config.passthrough(),
        }),
        SandboxType::Docker => Choice::Docker(docker(context)?),
        SandboxType::DockerSandbox => Choice::DockerSandbox(DockerSandboxOptions {
            machines: machines(context, "docker-sandboxes")?,
        }),
        SandboxType::Tart => Choice::Tart(tart(context, config)?),
        SandboxType::Daytona => Choice::Daytona(daytona(context, config)?),
    })
}

/// What the `docker` provider needs to know.
pub(crate) fn docker(context: &AssemblyContext) -> Result<DockerOptions, AssemblyError> {
    let surroundings = &context.surroundings;
    Ok(DockerOptions {
        base: surroundings.data_dir()?.join("sandboxes"),
        surroundings: surroundings.engine(),
        guest_dir: surroundings.data_dir()?.join("guest"),
        cache: surroundings.cache_dir()?.join("image-files"),
        host: surroundings.host(),
        machine: surroundings.owner().host,
    })
}

/// Where machines that a program makes are kept.
fn machines(context: &AssemblyContext, dir: &str) -> Result<MachineOptions, AssemblyError> {
    let surroundings = &context.surroundings;
    Ok(MachineOptions {
        base: surroundings.data_dir()?.join(dir),
        guest_dir: surroundings.data_dir()?.join("guest"),
        host: surroundings.machine_host(),
        machine: surroundings.owner().host,
    })
}

/// What the `tart` provider needs to know.
fn tart(context: &AssemblyContext, config: &Config) -> Result<TartOptions, AssemblyError> {
    let script = project_dir(&context.surroundings.cwd).join(".agent-loop/dependencies.sh");
    let dependencies = match std::fs::read_to_string(&script) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(io("read", &script))?,
    };
    Ok(TartOptions {
        machines: machines(context, "tart")?,
        dependencies,
        boot_patience: config.settings.timers.boot,
    })
}

/// What the `daytona` provider needs to know.
fn daytona(context: &AssemblyContext, config: &Config) -> Result<DaytonaOptions, AssemblyError> {
    let (surroundings, settings) = (&context.surroundings, &config.settings.sandbox.daytona);
    let url = surroundings
        .var("DAYTONA_API_URL")
        .unwrap_or(DaytonaOptions::API_URL);
    let dockerfile = settings.dockerfile.as_ref().map(|name| {
        if config.settings.sandbox.image.is_some() {
            return Err(AssemblyError::usage(
                "`sandbox.image` and `sandbox.daytona.dockerfile` both say what a sandbox starts from",
            ));
        }
        let path = project_dir(&surroundings.cwd).join(name);
        std::fs::read_to_string(&path).map_err(io("read", &path))
    });
    let reporter = context.reporter.clone();
    Ok(DaytonaOptions {
        waiting: Waiting::told_to(move |what| reporter.inform(&format!("  waiting: {what}"))),
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
        )
    })
}

/// Tells what the provider does not hold.
pub(crate) fn report_limits(context: &AssemblyContext, config: &Config, provider: &dyn Provider) {
    let capabilities = provider.capabilities();
    let spends = agents::agent_name(config, &config.settings.default_profile) != AgentName::Actions;
    let spending = capabilities.spending_notice().filter(|_| spends);
    for notice in capabilities.notice().into_iter().chain(spending) {
        context.reporter.warn(&notice);
    }
}

/// What a sandbox may reach, as far as the provider holds it: all of it, or, where a person chose to go on without, nothing.
pub(crate) fn enforceable(
    context: &AssemblyContext,
    config: &Config,
    (provider, policy): (&dyn Provider, Policy),
) -> Result<Policy, AssemblyError> {
    match check_policy(provider, &policy) {
        Ok(()) => Ok(policy),
        Err(error) if may_go_on(config) => {
            context
                .reporter
                .warn(&format!("{error}: the network policy does not hold"));
            Ok(Policy::allow_all())
        }
        Err(error) => Err(unenforceable(error)),
    }
}

/// A policy nobody asked for may give way to a provider somebody chose; one that was asked for may not.
fn may_go_on(config: &Config) -> bool {
    let asked_for = config
        .origin("sandbox.network.policy")
        .is_some_and(|origin| origin.layer != Layer::Default);
    config.settings.sandbox.network.on_unenforceable == OnUnenforceable::Warn || !asked_for
}

fn unenforceable(error: SandboxError) -> AssemblyError {
    AssemblyError::from(error)
        .with_hint("choose another provider, or set sandbox.network.policy = \"allow-all\" or on_unenforceable = \"warn\"")
}
