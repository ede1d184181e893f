//! The sandbox of a run, for people.

use schemars::JsonSchema;
use serde::Serialize;

use crate::sandbox::{Isolation, Provider, SandboxListing};
use crate::state::RunDir;

use super::provider::create_provider;
use super::{AssemblyError, ErrorTopic, RunControl};

/// Where a run works.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunSandbox {
    /// The provider.
    pub provider: String,
    /// Whether its commands are isolated from the host.
    pub is_isolated: bool,
    /// Whether a port inside can be opened in a browser.
    pub has_preview: bool,
    /// The limit of memory, in bytes.
    pub memory_bytes: u64,
    /// The limit of processor time, in thousandths of a processor.
    pub cpu_millis: u32,
    /// The limit of disk, in bytes; `null` is the default of the provider.
    pub disk_bytes: Option<u64>,
    /// Its sandboxes: none before it started, and after it was removed.
    pub sandboxes: Vec<SandboxOverview>,
}

/// A sandbox that exists.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SandboxOverview {
    /// Its name.
    pub id: String,
    /// `running`, `stopped` or `removed`.
    pub activity: String,
    /// Whether its owner exists, in words.
    pub ownership: String,
    /// The process that owns it, or owned it last.
    pub owner: Option<String>,
    /// The image it was created from.
    pub image: Option<String>,
    /// Its workspace on the host, or the path inside.
    pub workspace: String,
    /// When it was created.
    pub created: Option<String>,
}

impl SandboxOverview {
    fn new(listed: &SandboxListing) -> Self {
        Self {
            id: listed.id.clone(),
            activity: listed.activity.name().to_owned(),
            ownership: listed.standing.describe().to_owned(),
            owner: listed.owner.clone(),
            image: listed.image.clone(),
            workspace: listed.workspace.display().to_string(),
            created: listed.created.map(|at| at.to_string()),
        }
    }
}

impl RunControl {
    /// The sandbox of a run: what its provider enforces, and what exists of it.
    pub async fn sandbox(&self, run: &RunDir) -> Result<RunSandbox, AssemblyError> {
        let config = self.configuration(run)?;
        let provider = create_provider(&self.context, &config)?;
        let capabilities = provider.capabilities();
        let resources = &config.settings.sandbox.resources;
        let listed = sandboxes_of(provider.as_ref(), run).await?;
        Ok(RunSandbox {
            provider: provider.name().to_owned(),
            is_isolated: capabilities.isolation != Isolation::DirectoryOnly,
            has_preview: capabilities.preview,
            memory_bytes: resources.memory_bytes,
            cpu_millis: resources.cpu_millis,
            disk_bytes: resources.disk_bytes,
            sandboxes: listed.iter().map(SandboxOverview::new).collect(),
        })
    }

    /// A URL by which a browser reaches a port of the run's sandbox.
    pub async fn preview(&self, run: &RunDir, port: u16) -> Result<String, AssemblyError> {
        let id = &run.facts().id;
        let provider = create_provider(&self.context, &self.configuration(run)?)?;
        if !provider.capabilities().preview {
            let name = provider.name();
            let message =
                format!("ports of sandboxes of the provider `{name}` cannot be opened in a browser");
            return Err(AssemblyError::usage(message).with_topic(ErrorTopic::Sandbox));
        }
        for listed in sandboxes_of(provider.as_ref(), run).await? {
            if let Some(sandbox) = provider.attach(&listed.id).await?
                && let Some(url) = sandbox.preview(port).await?
            {
                return Ok(url);
            }
        }
        Err(AssemblyError::not_found(format!(
            "run `{id}` has no sandbox whose port {port} can be opened"
        ))
        .with_topic(ErrorTopic::Sandbox)
        .with_hint("a run has a sandbox while it works"))
    }
}

async fn sandboxes_of(provider: &dyn Provider, run: &RunDir) -> Result<Vec<SandboxListing>, AssemblyError> {
    let mut listed = provider.list().await?;
    listed.retain(|one| one.run.as_ref() == Some(&run.facts().id));
    Ok(listed)
}
