//! What a builder takes for a sandbox and for an agent.

use std::sync::Arc;

use crate::agent::{Agent, Claude, Codex, Cursor, Gemini, OpenCode};
use crate::sandbox::Provider;

/// The sandbox of a run: settings of a provider that ralph knows, or a provider of your own.
pub enum SandboxChoice {
    /// Configuration keys and their values.
    Settings(Vec<(&'static str, String)>),
    /// A provider that is used as it is.
    Own(Arc<dyn Provider>),
}

/// The agent of a run: settings of an agent that ralph knows, or an agent of your own.
pub enum AgentChoice {
    /// Configuration keys and their values.
    Settings(Vec<(&'static str, String)>),
    /// An agent that is used as it is.
    Own(Arc<dyn Agent>),
}

/// Containers of a Docker Engine, with the network sealed.
#[derive(Clone, Debug, Default)]
pub struct Docker {
    allowed: Vec<String>,
    image: Option<String>,
}

impl Docker {
    /// The policy of the configuration: by default nothing but the agent's model can be reached.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the sandbox reach these host names, and nothing else besides the agent's model.
    #[must_use]
    pub fn allow<I: Into<String>>(mut self, hosts: impl IntoIterator<Item = I>) -> Self {
        self.allowed.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Starts from this image in place of the one that ralph builds for the agent.
    #[must_use]
    pub fn image(mut self, name: impl Into<String>) -> Self {
        self.image = Some(name.into());
        self
    }
}

impl From<Docker> for SandboxChoice {
    fn from(docker: Docker) -> Self {
        let mut settings = vec![("sandbox.type", "docker".to_owned())];
        if !docker.allowed.is_empty() {
            settings.push(("sandbox.network.policy", "allowlist".to_owned()));
            settings.push(("sandbox.network.allowed", docker.allowed.join(",")));
        }
        settings.extend(docker.image.map(|image| ("sandbox.image", image)));
        Self::Settings(settings)
    }
}

/// Plain processes in a directory of the host. Isolates nothing; for trying things out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local;

impl From<Local> for SandboxChoice {
    fn from(Local: Local) -> Self {
        Self::Settings(vec![("sandbox.type", "local".to_owned())])
    }
}

/// A provider by its name in the configuration, for example `tart`.
impl From<&str> for SandboxChoice {
    fn from(name: &str) -> Self {
        Self::Settings(vec![("sandbox.type", name.to_owned())])
    }
}

impl<P: Provider + 'static> From<P> for SandboxChoice {
    fn from(provider: P) -> Self {
        Self::Own(Arc::new(provider))
    }
}

impl From<Claude> for AgentChoice {
    fn from(claude: Claude) -> Self {
        Self::program("claude", claude.model, claude.effort)
    }
}

impl From<Codex> for AgentChoice {
    fn from(codex: Codex) -> Self {
        Self::program("codex", codex.model, codex.effort)
    }
}

impl From<Cursor> for AgentChoice {
    fn from(cursor: Cursor) -> Self {
        Self::program("cursor", cursor.model, None)
    }
}

impl From<Gemini> for AgentChoice {
    fn from(gemini: Gemini) -> Self {
        Self::program("gemini", gemini.model, None)
    }
}

impl From<OpenCode> for AgentChoice {
    fn from(opencode: OpenCode) -> Self {
        Self::program("opencode", opencode.model, opencode.effort)
    }
}

impl AgentChoice {
    fn program(name: &str, model: Option<String>, effort: Option<String>) -> Self {
        let mut settings = vec![("agent.name", name.to_owned())];
        settings.extend(model.map(|model| ("agent.model", model)));
        settings.extend(effort.map(|effort| ("agent.effort", effort)));
        Self::Settings(settings)
    }
}

/// An agent by its name in the configuration, for example `claude` or the built-in `actions`.
impl From<&str> for AgentChoice {
    fn from(name: &str) -> Self {
        Self::Settings(vec![("agent.name", name.to_owned())])
    }
}

impl<A: Agent + 'static> From<A> for AgentChoice {
    fn from(agent: A) -> Self {
        Self::Own(Arc::new(agent))
    }
}
