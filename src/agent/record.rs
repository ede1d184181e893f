//! What ralph knows about an agent.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::model::{AuthMethod, ModelService};

use super::{AGENTS, Agent, ModelAccess};

/// What ralph knows about one agent.
pub struct AgentRecord {
    /// The value of `agent.name`.
    pub name: &'static str,
    /// One sentence for the reference.
    pub summary: &'static str,
    /// The executable; `None` for an agent whose program the configuration names, and for one without a program.
    pub program: Option<&'static str>,
    /// The command that installs the executable on a host.
    pub install: Option<&'static str>,
    /// What its images contain.
    pub image: AgentImage,
    /// The service that it calls; `None` if the configuration decides that.
    pub service: Option<&'static ModelService>,
    /// The path of the API below the address of its service, such as `/v1`.
    pub base_path: &'static str,
    /// Whether it can call its service at another address.
    pub accepts_base_url: bool,
    /// The variables in which it looks for a credential, in order of precedence.
    pub key_variables: &'static [KeyVariable],
    /// The files and directories at the top of a repository from which it reads settings, hooks or instructions.
    pub settings_files: &'static [&'static str],
    /// Whether its transcript has the cost of a session.
    pub reports_cost: bool,
    /// Whether ralph itself calls the model, outside the sandbox.
    pub is_built_in: bool,
    /// Creates the agent.
    pub create: fn(AgentOptions, ModelAccess) -> Result<Arc<dyn Agent>, AgentOptionsError>,
}

/// The image of an agent. Agents without a program share the image of `actions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentImage {
    /// The name in tags and labels.
    pub name: &'static str,
    /// The template of its Dockerfile.
    pub dockerfile: &'static str,
}

/// An environment variable in which a program looks for its credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVariable {
    /// The name of the variable.
    pub name: &'static str,
    /// How the credential in it authenticates.
    pub auth: AuthMethod,
}

/// The configuration of an agent.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// The model; `None` uses the program's default.
    pub model: Option<String>,
    /// The reasoning effort; `None` uses the default.
    pub effort: Option<String>,
    /// The program and its arguments, for `custom`.
    pub command: Vec<String>,
    /// The environment variable for the credential, for `custom`.
    pub key_variable: Option<String>,
}

/// Why an agent cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AgentOptionsError {
    /// The configuration names no program.
    #[error("the agent `custom` has no command")]
    NoCommand,
}

impl AgentRecord {
    /// The names of all agents, for help texts.
    #[must_use]
    pub fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// The variable in which it looks for a credential that authenticates with this method. The key of a gateway is in the
    /// variable of the vendor's key, unless the agent has one for gateways.
    #[must_use]
    pub fn key_variable(&self, auth: AuthMethod) -> Option<&'static str> {
        let variable_for = |auth| self.key_variables.iter().find(|variable| variable.auth == auth);
        let variable = match auth {
            AuthMethod::Gateway => variable_for(auth).or_else(|| variable_for(AuthMethod::ApiKey)),
            AuthMethod::ApiKey | AuthMethod::OAuth => variable_for(auth),
        };
        variable.map(|variable| variable.name)
    }

    /// The service whose calls the broker can add credentials to.
    #[must_use]
    pub fn brokered_service(&self) -> Option<&'static ModelService> {
        self.service.filter(|service| service.is_brokered())
    }
}

impl Serialize for AgentImage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// An agent in [`AGENTS`]. A setting holds its name.
pub type KnownAgent = &'static AgentRecord;

/// A name that is not in [`AGENTS`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown agent `{0}`: expected one of {names}", names = NAMES.join(", "))]
pub struct UnknownAgent(String);

static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| AGENTS.iter().map(|agent| agent.name).collect());

impl FromStr for KnownAgent {
    type Err = UnknownAgent;

    fn from_str(name: &str) -> Result<Self, UnknownAgent> {
        let known = AGENTS.iter().copied().find(|agent| agent.name == name);
        known.ok_or_else(|| UnknownAgent(name.to_owned()))
    }
}

impl PartialEq for AgentRecord {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for AgentRecord {}

impl fmt::Debug for AgentRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for AgentRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for AgentRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for KnownAgent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KnownAgentVisitor)
    }
}

/// Reports an unknown name to the deserializer, which knows its place.
struct KnownAgentVisitor;

impl Visitor<'_> for KnownAgentVisitor {
    type Value = KnownAgent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an agent")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<KnownAgent, E> {
        name.parse().map_err(|_| E::unknown_variant(name, &NAMES))
    }
}

impl JsonSchema for AgentRecord {
    fn schema_name() -> Cow<'static, str> {
        "AgentName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = AGENTS.iter().map(
            |agent| json_schema!({ "type": "string", "const": agent.name, "description": agent.summary }),
        );
        json_schema!({ "description": "The agent.", "oneOf": names.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse() {
        for (index, agent) in AGENTS.iter().enumerate() {
            let parsed: KnownAgent = agent.name.parse().unwrap();
            assert_eq!(AGENTS.iter().position(|other| *other == parsed), Some(index));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = "cloude".parse::<KnownAgent>().unwrap_err().to_string();
        assert!(
            error.starts_with("unknown agent `cloude`: expected one of claude, "),
            "{error}"
        );
    }

    #[test]
    fn a_credential_is_never_in_a_variable_for_another_method() {
        let variable = |agent: &str, auth| agent.parse::<KnownAgent>().unwrap().key_variable(auth);
        assert_eq!(variable("codex", AuthMethod::Gateway), Some("OPENAI_API_KEY"));
        assert_eq!(
            variable("claude", AuthMethod::Gateway),
            Some("ANTHROPIC_AUTH_TOKEN")
        );
        assert_eq!(variable("codex", AuthMethod::OAuth), None);
    }

    /// The broker has to know which credential it gets from a variable.
    #[test]
    fn every_key_variable_is_for_a_credential_of_the_service() {
        for agent in AGENTS {
            for variable in agent.key_variables {
                let known = agent
                    .service
                    .and_then(|service| service.credential(variable.auth));
                assert!(
                    known.is_some() || variable.auth == AuthMethod::Gateway,
                    "{}",
                    variable.name
                );
            }
        }
    }
}
