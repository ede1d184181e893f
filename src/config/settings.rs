//! Every setting, with its type. The keys, the strictness and the JSON schema all come from these types; what each
//! key means and what it is when nobody sets it stands in `templates/default.toml`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::choice::{
    AgentName, DoctorApply, ForgeType, LadderRung, NetworkPolicy, OnUnenforceable, SandboxType,
};
use super::models::ModelSettings;
use super::read;
use crate::credential::AuthMethod;
use crate::id::RepositoryName;
use crate::image::ImageReference;
use crate::network::{AddressRange, HostPattern, PolicyRule, Preset};
use crate::nix::{Attribute, InputPath};
use crate::usage::Usd;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The profile a run begins with.
    #[serde(deserialize_with = "read::text")]
    pub default_profile: String,
    /// The profile the ladder switches to.
    #[serde(deserialize_with = "read::text")]
    pub fallback_profile: String,
    /// The profile that diagnoses a stuck run.
    #[serde(deserialize_with = "read::text")]
    pub doctor_profile: String,
    /// The sandbox of a run.
    pub sandbox: SandboxSettings,
    /// What a sandbox starts from.
    pub image: ImageSettings,
    /// What edits the code.
    pub agent: AgentSettings,
    /// Model profiles by name.
    pub models: BTreeMap<String, ModelSettings>,
    /// Where models are reached.
    pub model_endpoint: ModelEndpointSettings,
    /// What a run may use up.
    pub budget: BudgetSettings,
    /// When an agent goes in circles, and what is done about it.
    pub gutter: GutterSettings,
    /// The diagnosis of a stuck run.
    pub doctor: DoctorSettings,
    /// Commits and branches.
    pub git: GitSettings,
    /// Where the pull request is opened.
    pub forge: ForgeSettings,
    /// What a task must have.
    pub task: TaskSettings,
    /// What an agent is told.
    pub prompt: PromptSettings,
    /// How long ralph waits.
    pub timers: TimerSettings,
}

/// `[sandbox]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxSettings {
    /// Whether there is a sandbox at all; without one, `local` is used.
    #[serde(deserialize_with = "read::flag")]
    pub enabled: bool,
    /// The provider.
    #[serde(rename = "type")]
    pub kind: SandboxType,
    /// An image to use as it is.
    #[serde(default, deserialize_with = "read::optional_text")]
    pub image: Option<String>,
    /// Where `image push` and `image pull` find planned images.
    #[serde(default, deserialize_with = "read::optional_registry")]
    pub registry: Option<String>,
    /// Whether a run keeps its sandbox between iterations.
    #[serde(deserialize_with = "read::flag")]
    pub reuse_container: bool,
    /// Whether `image pull` skips what is already here.
    #[serde(deserialize_with = "read::flag")]
    pub use_local_image: bool,
    /// Variables the `local` provider passes in.
    #[serde(deserialize_with = "read::variables")]
    pub env_passthrough: Vec<String>,
    /// What of this machine a sandbox may read besides its workspace.
    #[serde(default)]
    pub mounts: Vec<MountSettings>,
    /// Which names the sandbox may reach.
    pub network: NetworkSettings,
    /// The repository that it may reach with a credential.
    pub github: GitHubSettings,
    /// Its limits.
    pub resources: ResourceSettings,
    /// Sandboxes at Daytona.
    pub daytona: DaytonaSettings,
}

/// `[sandbox.github]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitHubSettings {
    /// The repository; `None` is none.
    #[serde(default, deserialize_with = "read::optional_repository")]
    #[schemars(with = "Option<String>")]
    pub repository: Option<RepositoryName>,
    /// Where git reaches it, without a slash at the end.
    #[serde(deserialize_with = "read::base_url")]
    pub url: String,
    /// Where its API answers, without a slash at the end.
    #[serde(deserialize_with = "read::base_url")]
    pub api_url: String,
    /// Whether a sandbox may push to it.
    #[serde(deserialize_with = "read::flag")]
    pub dangerously_allow_push: bool,
}

/// `[[sandbox.mounts]]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with `source` and `target`")]
pub struct MountSettings {
    /// Where it is on this machine.
    #[serde(deserialize_with = "read::absolute_path")]
    pub source: PathBuf,
    /// Where the sandbox sees it.
    #[serde(deserialize_with = "read::absolute_path")]
    pub target: PathBuf,
}

/// `[sandbox.network]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSettings {
    /// The policy.
    pub policy: NetworkPolicy,
    /// The lines an allowlist holds.
    #[serde(deserialize_with = "read::rules")]
    #[schemars(with = "Vec<String>")]
    pub allowed: Vec<PolicyRule>,
    /// The sets of hosts an allowlist holds besides.
    #[serde(deserialize_with = "read::presets")]
    #[schemars(with = "Vec<String>")]
    pub presets: Vec<Preset>,
    /// What is denied whatever else is said.
    #[serde(deserialize_with = "read::rules")]
    #[schemars(with = "Vec<String>")]
    pub denied: Vec<PolicyRule>,
    /// The hosts whose TLS is opened.
    #[serde(deserialize_with = "read::host_patterns")]
    #[schemars(with = "Vec<String>")]
    pub inspect: Vec<HostPattern>,
    /// Whether commands are told of the explicit proxy.
    #[serde(deserialize_with = "read::flag")]
    pub proxy_variables: bool,
    /// Addresses that names may lead to although they are not of the internet.
    #[serde(deserialize_with = "read::address_ranges")]
    #[schemars(with = "Vec<String>")]
    pub dangerously_allow_addresses: Vec<AddressRange>,
    /// Whether `record` is taken although nobody is at the terminal.
    #[serde(deserialize_with = "read::flag")]
    pub dangerously_record_unattended: bool,
    /// What to do when the provider cannot enforce the policy.
    pub on_unenforceable: OnUnenforceable,
}

/// `[sandbox.resources]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceSettings {
    /// Bytes of memory.
    #[serde(rename = "memory", deserialize_with = "read::size")]
    #[schemars(with = "String")]
    pub memory_bytes: u64,
    /// Thousandths of a processor.
    #[serde(rename = "cpus", deserialize_with = "read::cpus")]
    #[schemars(schema_with = "cpus_schema")]
    pub cpu_millis: u32,
    /// Bytes of disk; `None` leaves it to the provider.
    #[serde(rename = "disk", default, deserialize_with = "read::optional_size")]
    #[schemars(with = "Option<String>")]
    pub disk_bytes: Option<u64>,
    /// The most time one iteration may take.
    #[serde(rename = "timeout_minutes", deserialize_with = "read::minutes")]
    #[schemars(with = "NonZeroU32")]
    pub timeout: Duration,
}

/// `[sandbox.daytona]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaytonaSettings {
    /// A Dockerfile that Daytona builds; without one, sandboxes start from snapshots.
    #[serde(default, deserialize_with = "read::optional_text")]
    pub dockerfile: Option<String>,
    /// What an hour of a processor costs.
    #[serde(deserialize_with = "read::price")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub usd_per_cpu_hour: Usd,
    /// What an hour of a gigabyte of memory costs.
    #[serde(deserialize_with = "read::price")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub usd_per_memory_gb_hour: Usd,
    /// What an hour of a gigabyte of disk costs.
    #[serde(deserialize_with = "read::price")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub usd_per_disk_gb_hour: Usd,
}

/// `[image]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// The image that a Dockerfile starts from; `None` is the agent's own.
    #[serde(default, deserialize_with = "read::optional_image")]
    #[schemars(with = "Option<String>")]
    pub base: Option<ImageReference>,
    /// How old the last pull of the base may be.
    #[serde(rename = "refresh_days", deserialize_with = "read::days")]
    #[schemars(with = "NonZeroU32")]
    pub refresh_after: Duration,
    /// The image of a flake.
    pub nix: NixImageSettings,
}

/// `[image.nix]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NixImageSettings {
    /// The package that is the image.
    #[serde(deserialize_with = "read::attribute")]
    #[schemars(with = "String")]
    pub attribute: Attribute,
    /// The files that the image depends on; `None` is every file that git tracks.
    #[serde(default, deserialize_with = "read::optional_inputs")]
    #[schemars(with = "Option<Vec<String>>")]
    pub inputs: Option<Vec<InputPath>>,
}

/// `[agent]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// Which agent.
    pub name: AgentName,
    /// The model an agent program is told to use; `None` leaves it to the program.
    #[serde(default, deserialize_with = "read::optional_text")]
    pub model: Option<String>,
    /// How it authenticates; `None` is as the agent does by itself.
    #[serde(default)]
    pub auth: Option<AuthMethod>,
    /// How hard an agent program is told to think; `None` is `high` for `claude` and left to the others.
    #[serde(default, deserialize_with = "read::optional_text")]
    pub effort: Option<String>,
    /// Whether the credential itself is given to a sandbox where nothing can hold it back.
    #[serde(deserialize_with = "read::flag")]
    pub dangerously_pass_credential: bool,
    /// The agent named `custom`.
    #[serde(default)]
    pub custom: CustomAgentSettings,
}

/// `[agent.custom]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomAgentSettings {
    /// The program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
}

/// `[model_endpoint]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelEndpointSettings {
    /// The address, without a slash at its end.
    #[serde(deserialize_with = "read::base_url")]
    pub base_url: String,
    /// The variable that holds the key.
    #[serde(deserialize_with = "read::variable")]
    pub api_key_env: String,
}

/// `[budget]`: finite, always.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Iterations.
    #[serde(deserialize_with = "read::budget_count")]
    pub max_iterations: NonZeroU32,
    /// Time from start to end.
    #[serde(rename = "max_wall_time_minutes", deserialize_with = "read::minutes")]
    #[schemars(with = "NonZeroU32")]
    pub max_wall_time: Duration,
    /// Money.
    #[serde(rename = "max_cost_usd_estimate", deserialize_with = "read::budget_dollars")]
    #[schemars(with = "f64", extend("exclusiveMinimum" = 0))]
    pub max_cost: Usd,
    /// Tokens, in and out together; `None` counts by cost alone.
    #[serde(default, deserialize_with = "read::budget_tokens")]
    pub max_tokens_total: Option<NonZeroU64>,
    /// Gutters in a row.
    #[serde(deserialize_with = "read::budget_count")]
    pub max_consecutive_gutter: NonZeroU32,
    /// Time spent waiting for rate limits.
    #[serde(rename = "max_rate_limit_wait_minutes", deserialize_with = "read::minutes")]
    #[schemars(with = "NonZeroU32")]
    pub max_rate_limit_wait: Duration,
}

/// `[gutter]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GutterSettings {
    /// An iteration that changes fewer lines than this has changed nothing.
    #[serde(deserialize_with = "read::count")]
    pub diff_line_threshold: NonZeroU32,
    /// What is done about a gutter, in this order.
    pub ladder: Vec<LadderRung>,
}

/// `[doctor]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DoctorSettings {
    /// Asks the doctor every so many iterations; `None` only when the ladder says so.
    #[serde(default, deserialize_with = "read::optional_count")]
    pub every_iterations: Option<NonZeroU32>,
    /// What happens to a diagnosis.
    pub apply: DoctorApply,
}

/// `[git]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitSettings {
    /// Who commits.
    #[serde(deserialize_with = "read::text")]
    pub user_name: String,
    /// Their address.
    #[serde(deserialize_with = "read::text")]
    pub user_email: String,
    /// What branch names begin with.
    #[serde(deserialize_with = "read::branch_prefix")]
    pub branch_prefix: String,
}

/// `[forge]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgeSettings {
    /// Which forge.
    #[serde(rename = "type")]
    pub kind: ForgeType,
}

/// `[task]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSettings {
    /// The fewest checkboxes a task may have.
    #[serde(deserialize_with = "read::count")]
    pub min_checkboxes: NonZeroU32,
}

/// `[prompt]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptSettings {
    /// The longest a prompt may be.
    #[serde(deserialize_with = "read::count")]
    pub max_bytes: NonZeroU32,
}

/// `[timers]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerSettings {
    /// How long a command that has ended may be kept waiting by a child that holds its streams.
    #[serde(rename = "completion_grace_seconds", deserialize_with = "read::seconds")]
    #[schemars(with = "NonZeroU32")]
    pub completion_grace: Duration,
    /// How long an agent may print nothing before it is ended.
    #[serde(rename = "idle_minutes", deserialize_with = "read::minutes")]
    #[schemars(with = "NonZeroU32")]
    pub idle: Duration,
    /// How long a virtual machine may take until commands can be run in it.
    #[serde(rename = "boot_seconds", deserialize_with = "read::seconds")]
    #[schemars(with = "NonZeroU32")]
    pub boot: Duration,
}

fn cpus_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "number"] })
}
