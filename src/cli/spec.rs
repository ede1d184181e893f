//! From the configuration to what the sandbox of a run is made from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::gateway::audit::AuditLog;
use crate::gateway::{AddressGuard, Phantom};
use crate::network::{Clients, Directory, Policy};
use crate::sandbox::{Egress, Purpose, Reuse, SandboxSpec};
use crate::state::RunDir;
use crate::task::Task;

use super::Context;
use super::assemble::{Assembled, enforceable};
use super::error::CliError;

/// Which names may be reached, with what the project's own files tell package clients.
pub(super) fn network_policy(config: &Config, project: Option<&Path>) -> Policy {
    match project {
        Some(dir) => config.network_policy(&Clients::of_project(&Directory::at(dir))),
        None => config.network_policy(&Clients::NONE),
    }
}

/// What the sandbox is made from; `image` is what [`super::image::for_sandbox`] gave.
pub(super) fn sandbox_spec(
    context: &Context,
    config: &Config,
    run: &RunDir,
    (image, assembled): (Option<String>, &Assembled),
) -> Result<SandboxSpec, CliError> {
    let mut spec = plain_spec(config, run, image)?;
    if let Some(brokered) = &assembled.brokered {
        spec.network = brokered.allow(spec.network)?;
        spec.egress = brokered.join(spec.egress);
    }
    let provider = assembled.parts.provider.as_ref();
    spec.network = enforceable(context, config, (provider, spec.network))?;
    Ok(spec)
}

fn plain_spec(config: &Config, run: &RunDir, image: Option<String>) -> Result<SandboxSpec, CliError> {
    Ok(SandboxSpec {
        run: run.facts().id.clone(),
        purpose: Purpose {
            agent: config.settings.agent.name.name().to_owned(),
            branch: run.facts().branch.clone(),
            task: task_key(run),
        },
        mounts: config.mounts(),
        image,
        resources: config.resources(),
        network: network_policy(config, run.facts().project.as_deref()),
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

/// What the gateway of a sandbox works with. Nothing is written down yet.
pub(super) fn egress(config: &Config) -> Result<Egress, CliError> {
    let network = &config.settings.sandbox.network;
    let phantom = Phantom::random().map_err(|error| CliError::runtime(error.to_string()))?;
    Ok(Egress {
        guard: AddressGuard::dangerously_opening(network.dangerously_allow_addresses.iter().copied()),
        phantom: Some(phantom),
        ..Egress::default()
    })
}

/// The task of a run, told apart from those of other repositories.
fn task_key(run: &RunDir) -> String {
    let facts = run.facts();
    let id = Task::parse(&facts.task).map(|task| task.frontmatter.task_id.to_string());
    format!("{}#{}", facts.repository.display(), id.unwrap_or_default())
}
