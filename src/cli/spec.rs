//! From the configuration to what the sandbox of a run is made from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::gateway::audit::AuditLog;
use crate::gateway::{AddressGuard, Phantom};
use crate::network::Policy;
use crate::sandbox::{Egress, ProxyVariables, Purpose, Reuse, SandboxSpec};
use crate::state::RunDir;
use crate::task::Task;

use super::Context;
use super::broker::Brokered;
use super::clients::Told;
use super::error::CliError;

/// Which names may be reached, with what the files of the project and of the image tell package clients.
pub(super) async fn network_policy(
    context: &Context,
    config: &Config,
    project: Option<&Path>,
    image: Option<&str>,
) -> Result<Policy, CliError> {
    let told = Told::read(context, config, project, image).await?;
    Ok(config.network_policy(&told.clients()))
}

/// The same with what the broker serves within reach.
pub(super) fn with_broker(spec: SandboxSpec, brokered: Option<&Brokered>) -> Result<SandboxSpec, CliError> {
    Ok(match brokered {
        Some(brokered) => SandboxSpec {
            network: brokered.allow(spec.network)?,
            egress: brokered.join(spec.egress),
            ..spec
        },
        None => spec,
    })
}

/// What the sandbox of a run is made from.
pub(super) struct Making<'a> {
    pub(super) config: &'a Config,
    pub(super) run: &'a RunDir,
    /// What [`super::image::for_sandbox`] gave.
    pub(super) image: Option<String>,
    pub(super) brokered: Option<&'a Brokered>,
}

impl Making<'_> {
    pub(super) async fn spec(self, context: &Context) -> Result<SandboxSpec, CliError> {
        let brokered = self.brokered;
        with_broker(self.plain(context).await?, brokered)
    }

    async fn plain(self, context: &Context) -> Result<SandboxSpec, CliError> {
        let (config, run) = (self.config, self.run);
        let project = run.facts().project.as_deref();
        Ok(SandboxSpec {
            run: run.facts().id.clone(),
            purpose: Purpose {
                agent: config.settings.agent.name.name().to_owned(),
                branch: run.facts().branch.clone(),
                task: task_key(run),
            },
            mounts: config.mounts(),
            resources: config.resources(),
            network: network_policy(context, config, project, self.image.as_deref()).await?,
            image: self.image,
            egress: Egress {
                audit: Arc::new(AuditLog::open(&run.network_file())?),
                ..egress(config)?
            },
            env: BTreeMap::new(),
            completion_grace: config.settings.timers.completion_grace,
            reuse: if config.settings.sandbox.reuse_container {
                Reuse::Allowed
            } else {
                Reuse::Never
            },
        })
    }
}

/// What the gateway of a sandbox works with. Nothing is written down yet.
pub(super) fn egress(config: &Config) -> Result<Egress, CliError> {
    let network = &config.settings.sandbox.network;
    let phantom = Phantom::random().map_err(|error| CliError::runtime(error.to_string()))?;
    Ok(Egress {
        guard: AddressGuard::dangerously_opening(network.dangerously_allow_addresses.iter().copied()),
        phantom: Some(phantom),
        proxy_variables: if network.proxy_variables {
            ProxyVariables::Set
        } else {
            ProxyVariables::Unset
        },
        ..Egress::default()
    })
}

/// The task of a run, told apart from those of other repositories.
fn task_key(run: &RunDir) -> String {
    let facts = run.facts();
    let id = Task::parse(&facts.task).map(|task| task.frontmatter.task_id.to_string());
    format!("{}#{}", facts.repository.display(), id.unwrap_or_default())
}
