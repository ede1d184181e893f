//! From the configuration to the specification of a sandbox.

use std::path::PathBuf;

use crate::config::Config;
use crate::gateway::{AddressGuard, Phantom};
use crate::id::RunId;
use crate::sandbox::{Egress, Purpose, Reuse, SandboxSpec};
use crate::state::RunDir;
use crate::task::Task;

use super::image::PreparedImage;
use super::package_clients::network_policy;
use super::{AssemblyContext, AssemblyError};

/// What a sandbox is for.
pub(crate) struct SandboxUse {
    pub(crate) run: RunId,
    pub(crate) branch: String,
    /// Names the task, different from those of other repositories.
    pub(crate) task: String,
    /// The directory whose files say which package registries are used.
    pub(crate) project: Option<PathBuf>,
    pub(crate) image: PreparedImage,
    pub(crate) reuse: Reuse,
}

impl SandboxUse {
    /// The use of a sandbox by a run.
    pub(crate) fn for_run(
        dir: &RunDir,
        config: &Config,
        image: PreparedImage,
    ) -> Result<Self, AssemblyError> {
        let facts = dir.facts();
        let task = Task::parse(&facts.task)?.frontmatter.task_id;
        Ok(Self {
            run: facts.id.clone(),
            branch: facts.branch.clone(),
            task: format!("{}#{}", facts.repository.display(), task),
            project: facts.project.clone(),
            image,
            reuse: if config.settings.sandbox.reuse_container {
                Reuse::Allowed
            } else {
                Reuse::Never
            },
        })
    }
}

/// The sandbox that the configuration asks for. Its broker is not connected yet, and its connections are not recorded.
pub(crate) async fn sandbox_spec(
    context: &AssemblyContext,
    config: &Config,
    used: SandboxUse,
) -> Result<SandboxSpec, AssemblyError> {
    let project = used.project.as_deref();
    Ok(SandboxSpec {
        purpose: Purpose {
            agent: context.agent_name(config),
            branch: used.branch,
            task: used.task,
        },
        mounts: config.mounts(),
        resources: config.resources(),
        default_limits: config.default_limits(),
        network: network_policy(context, config, project, used.image.image.as_deref()).await?,
        image: used.image.image,
        dockerfile: used.image.dockerfile,
        build_files: used.image.build_files,
        egress: egress(config)?,
        completion_grace: config.settings.timers.completion_grace,
        reuse: used.reuse,
        ..SandboxSpec::unrestricted(used.run)
    })
}

fn egress(config: &Config) -> Result<Egress, AssemblyError> {
    let network = &config.settings.sandbox.network;
    let phantom = Phantom::random().map_err(|error| AssemblyError::runtime(error.to_string()))?;
    Ok(Egress {
        guard: AddressGuard::dangerously_opening(network.dangerously_allow_addresses.iter().copied()),
        phantom: Some(phantom),
        proxy_variables: network.proxy_variables,
        ..Egress::default()
    })
}
