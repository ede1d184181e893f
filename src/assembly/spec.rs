//! From the configuration to what the sandbox of a run is made from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::gateway::audit::AuditLog;
use crate::gateway::{AddressGuard, Phantom};
use crate::network::Policy;
use crate::sandbox::{Egress, Provider, ProxyVariables, Purpose, Reuse, SandboxSpec};
use crate::state::RunDir;
use crate::task::Task;

use super::AssemblyContext;
use super::AssemblyError;
use super::broker::Brokered;
use super::clients::Told;
use super::provider::enforceable;

/// Which names may be reached, with what the files of the project and of the image tell package clients.
pub(crate) async fn network_policy(
    context: &AssemblyContext,
    config: &Config,
    project: Option<&Path>,
    image: Option<&str>,
) -> Result<Policy, AssemblyError> {
    let told = Told::read(context, config, project, image).await?;
    Ok(config.network_policy(&told.clients()))
}

/// The same with what the broker serves within reach.
pub(crate) fn with_broker(
    spec: SandboxSpec,
    brokered: Option<&Brokered>,
) -> Result<SandboxSpec, AssemblyError> {
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
pub(crate) struct Making<'a> {
    pub(crate) config: &'a Config,
    pub(crate) run: &'a RunDir,
    /// What [`super::image::for_sandbox`] gave.
    pub(crate) image: Option<String>,
    /// Who makes it.
    pub(crate) provider: &'a dyn Provider,
    pub(crate) brokered: Option<&'a Brokered>,
}

impl Making<'_> {
    pub(crate) async fn spec(self, context: &AssemblyContext) -> Result<SandboxSpec, AssemblyError> {
        let (config, provider, brokered) = (self.config, self.provider, self.brokered);
        let spec = with_broker(self.plain(context).await?, brokered)?;
        Ok(SandboxSpec {
            network: enforceable(context, config, (provider, spec.network))?,
            ..spec
        })
    }

    async fn plain(self, context: &AssemblyContext) -> Result<SandboxSpec, AssemblyError> {
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
pub(crate) fn egress(config: &Config) -> Result<Egress, AssemblyError> {
    let network = &config.settings.sandbox.network;
    let phantom = Phantom::random().map_err(|error| AssemblyError::runtime(error.to_string()))?;
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
