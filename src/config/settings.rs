//! Every setting with its type: the known keys and the JSON schema. `templates/default.toml` has defaults and documentation.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::api_access::ApiAccessSettings;
use super::choice::{
    DoctorApply, ForgeType, LadderRung, OnFullAudit, OnOverlap, OnUnenforceable, OnWeakenedTests, SandboxType,
};
use super::dashboard::DashboardSettings;
use super::daytona::DaytonaSettings;
use super::docker::DockerSettings;
use super::models::ModelSettings;
use super::notify::NotifySettings;
use super::read;
use super::service::ServiceSettings;
use super::timers::TimerSettings;
use super::worker::WorkerSettings;
use crate::agent::KnownAgent;
use crate::credential::AuthMethod;
use crate::id::RepositoryName;
use crate::image::ImageReference;
use crate::network::{AddressRange, HostPattern, PolicyMode, PolicyRule, Preset};
use crate::nix::{Attribute, InputPath};
use crate::usage::Usd;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigSettings {
    /// The profile that a run starts with.
    #[serde(deserialize_with = "read::text")]
    pub default_profile: String,
    /// The profile that the ladder switches to.
    #[serde(deserialize_with = "read::text")]
    pub fallback_profile: String,
    /// The profile that diagnoses a stuck run.
    #[serde(deserialize_with = "read::text")]
    pub doctor_profile: String,
    /// Who is notified about runs.
    #[serde(default)]
    pub notify: Vec<NotifySettings>,
    /// The sandbox of a run.
    pub sandbox: SandboxSettings,
    /// The image of a sandbox.
    pub image: ImageSettings,
    /// The agent.
    pub agent: AgentSettings,
    /// Model profiles by name.
    pub models: BTreeMap<String, ModelSettings>,
    /// The model endpoint.
    pub model_endpoint: ModelEndpointSettings,
    /// The limits of a run.
    pub budget: BudgetSettings,
    /// When an agent goes in circles, and what ralph does then.
    pub gutter: GutterSettings,
    /// The diagnosis of a stuck run.
    pub doctor: DoctorSettings,
    /// What evidence has to show before a run is done.
    pub done: DoneSettings,
    /// Commits and branches.
    pub git: GitSettings,
    /// Where the pull request is opened.
    pub forge: ForgeSettings,
    /// How `ralph worker` claims runs.
    pub worker: WorkerSettings,
    /// Requirements for tasks.
    pub task: TaskSettings,
    /// The prompt of an agent.
    pub prompt: PromptSettings,
    /// Timeouts.
    pub timers: TimerSettings,
    /// Who may use the API.
    pub api: ApiAccessSettings,
    /// What people may do on the dashboard.
    pub dashboard: DashboardSettings,
    /// What `ralph serve` does besides answering requests.
    pub service: ServiceSettings,
}

/// `[sandbox]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxSettings {
    /// Whether the agent is isolated; otherwise `local` is used.
    pub enabled: bool,
    /// The provider.
    #[serde(rename = "type")]
    pub kind: SandboxType,
    /// An image to use as it is.
    #[serde(default, deserialize_with = "read::text")]
    pub image: Option<String>,
    /// Where `image push` and `image pull` find planned images.
    #[serde(default, deserialize_with = "read::registry")]
    pub registry: Option<String>,
    /// Whether a run keeps its sandbox between iterations.
    pub reuse_container: bool,
    /// Whether `image pull` skips images that the engine has.
    pub use_local_image: bool,
    /// Variables that the `local` provider passes in.
    #[serde(deserialize_with = "read::variables")]
    pub env_passthrough: Vec<String>,
    /// Variables of the commands in a sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Secrets of the host that commands can send, by the variable that has the placeholder.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretSettings>,
    /// Host directories that a sandbox may read besides its workspace.
    #[serde(default)]
    pub mounts: Vec<MountSettings>,
    /// Which host names the sandbox may reach.
    pub network: NetworkSettings,
    /// The GitHub repository that it may reach with a credential.
    pub github: GitHubSettings,
    /// What calls to models may have besides what agents are known to send.
    pub model_calls: ModelCallSettings,
    /// Its limits.
    pub resources: ResourceSettings,
    /// Sandboxes of a container engine.
    pub docker: DockerSettings,
    /// Sandboxes at Daytona.
    pub daytona: DaytonaSettings,
}

/// `[sandbox.github]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitHubSettings {
    /// The repository, if any.
    #[serde(default, deserialize_with = "read::repository")]
    #[schemars(with = "Option<String>")]
    pub repository: Option<RepositoryName>,
    /// The address for git, without a trailing slash.
    #[serde(deserialize_with = "read::base_url")]
    pub url: String,
    /// The address of the API, without a trailing slash.
    #[serde(deserialize_with = "read::base_url")]
    pub api_url: String,
    /// Whether a sandbox may push to it.
    pub dangerously_allow_push: bool,
}

/// `[sandbox.model_calls]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelCallSettings {
    /// Paths of fields.
    pub allowed_fields: Vec<String>,
    /// Names of headers.
    pub allowed_headers: Vec<String>,
}

/// `[[sandbox.mounts]]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with `source` and `target`")]
pub struct MountSettings {
    /// The path on the host.
    #[serde(deserialize_with = "read::absolute_path")]
    pub source: PathBuf,
    /// The path in the sandbox.
    #[serde(deserialize_with = "read::absolute_path")]
    pub target: PathBuf,
}

/// `[sandbox.secrets.NAME]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretSettings {
    /// The variable of the host that holds it; `None` is the same name.
    #[serde(default, deserialize_with = "read::variable")]
    pub from: Option<String>,
    /// The hosts that it is sent to.
    #[serde(default, deserialize_with = "read::host_patterns")]
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<HostPattern>,
    /// Whether the value itself is passed into the sandbox.
    #[serde(default)]
    pub dangerously_pass: bool,
}

/// `[sandbox.network]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkSettings {
    /// The policy.
    pub policy: PolicyMode,
    /// The rules of an allowlist.
    #[serde(deserialize_with = "read::rules")]
    #[schemars(with = "Vec<String>")]
    pub allowed: Vec<PolicyRule>,
    /// Further sets of host names for an allowlist.
    #[serde(deserialize_with = "read::presets")]
    #[schemars(with = "Vec<String>")]
    pub presets: Vec<Preset>,
    /// What is always denied.
    #[serde(deserialize_with = "read::rules")]
    #[schemars(with = "Vec<String>")]
    pub denied: Vec<PolicyRule>,
    /// The hosts that a person may add to the policy of a run; `None` is every public name.
    #[serde(default, deserialize_with = "read::listed_hosts")]
    #[schemars(with = "Option<Vec<String>>")]
    pub may_be_allowed: Option<Vec<HostPattern>>,
    /// The hosts whose TLS the gateway decrypts.
    #[serde(deserialize_with = "read::host_patterns")]
    #[schemars(with = "Vec<String>")]
    pub inspect: Vec<HostPattern>,
    /// Whether the variables of the explicit proxy are set.
    pub proxy_variables: bool,
    /// Private addresses that host names may resolve to.
    #[serde(deserialize_with = "read::address_ranges")]
    #[schemars(with = "Vec<String>")]
    pub dangerously_allow_addresses: Vec<AddressRange>,
    /// Whether `record` is accepted without a person at the terminal.
    pub dangerously_record_unattended: bool,
    /// What to do when the provider cannot enforce the policy.
    pub on_unenforceable: OnUnenforceable,
    /// What to do when the audit is full.
    pub on_full_audit: OnFullAudit,
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
    /// Bytes of disk; `None` is the default of the provider.
    #[serde(rename = "disk", default, deserialize_with = "read::size")]
    #[schemars(with = "Option<String>")]
    pub disk_bytes: Option<u64>,
    /// The time limit of one iteration.
    #[serde(rename = "timeout_minutes", deserialize_with = "read::minutes")]
    #[schemars(with = "NonZeroU32")]
    pub timeout: Duration,
}

/// `[image]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// The image that a Dockerfile starts from; `None` is that of the agent.
    #[serde(default, deserialize_with = "read::image")]
    #[schemars(with = "Option<String>")]
    pub base: Option<ImageReference>,
    /// The maximum age of the last pull of the base.
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
    #[serde(default, deserialize_with = "read::inputs")]
    #[schemars(with = "Option<Vec<String>>")]
    pub inputs: Option<Vec<InputPath>>,
}

/// `[agent]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// Which agent.
    #[serde(rename = "name")]
    pub kind: KnownAgent,
    /// The model of an agent program; `None` is the default of the program.
    #[serde(default, deserialize_with = "read::text")]
    pub model: Option<String>,
    /// How it authenticates; `None` is the default of the agent.
    #[serde(default)]
    pub auth: Option<AuthMethod>,
    /// The reasoning effort of an agent program; `None` is `high` for `claude` and the default of other programs.
    #[serde(default, deserialize_with = "read::text")]
    pub effort: Option<String>,
    /// Whether the credential itself is passed into the sandbox.
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
    /// The address, without a trailing slash; `None` calls the services of the models directly.
    #[serde(default, deserialize_with = "read::base_url")]
    pub base_url: Option<String>,
    /// The variable that holds the key.
    #[serde(deserialize_with = "read::variable")]
    pub api_key_env: String,
}

/// `[budget]`: always finite.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettings {
    /// Iterations.
    #[serde(deserialize_with = "read::budget_count")]
    pub max_iterations: NonZeroU32,
    /// Working time, without waiting for rate limits and without time in which nothing ran.
    #[serde(rename = "max_wall_time_minutes", deserialize_with = "read::minutes")]
    #[schemars(with = "NonZeroU32")]
    pub max_wall_time: Duration,
    /// Money.
    #[serde(rename = "max_cost_usd_estimate", deserialize_with = "read::budget_dollars")]
    #[schemars(with = "f64", extend("exclusiveMinimum" = 0))]
    pub max_cost: Usd,
    /// Input and output tokens; `None` means no limit besides the cost.
    #[serde(default, deserialize_with = "read::budget_tokens")]
    pub max_tokens_total: Option<NonZeroU64>,
    /// Consecutive iterations in the gutter.
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
    /// An iteration that changes fewer lines than this counts as unchanged.
    pub diff_line_threshold: NonZeroU32,
    /// The steps of the ladder, in order.
    pub ladder: Vec<LadderRung>,
}

/// `[doctor]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DoctorSettings {
    /// The interval of diagnoses in iterations; `None` leaves them to the ladder.
    #[serde(default)]
    pub every_iterations: Option<NonZeroU32>,
    /// Whether a diagnosis is applied automatically.
    pub apply: DoctorApply,
}

/// `[done]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DoneSettings {
    /// How often each command has to pass in a row.
    pub repeat: NonZeroU32,
    /// What to do when checks were weakened.
    pub weakened_tests: OnWeakenedTests,
    /// Whether the run waits for the CI of the forge.
    pub wait_for_ci: bool,
    /// How long it waits for one commit.
    pub ci_minutes: NonZeroU32,
    /// How long checks may take to appear.
    pub ci_settle_seconds: NonZeroU32,
    /// The time between two questions.
    pub ci_poll_seconds: NonZeroU32,
}

/// `[git]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitSettings {
    /// The author of commits.
    #[serde(deserialize_with = "read::text")]
    pub user_name: String,
    /// The email address of the author.
    #[serde(deserialize_with = "read::text")]
    pub user_email: String,
    /// The first part of branch names.
    #[serde(deserialize_with = "read::branch_prefix")]
    pub branch_prefix: String,
    /// Whether ralph commits what an agent leaves uncommitted.
    pub commit_leftovers: bool,
    /// The repository that checkpoints are pushed to.
    #[serde(default, deserialize_with = "read::state_remote")]
    pub state_remote: Option<String>,
}

/// `[forge]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgeSettings {
    /// Which forge.
    #[serde(rename = "type")]
    pub kind: ForgeType,
    /// How often the pull request is updated while the run works, at most.
    pub update_minutes: NonZeroU32,
    /// What to do when another open pull request changes the same files.
    pub on_overlap: OnOverlap,
    /// Whether commits get a status.
    pub statuses: bool,
    /// How long a claim on an issue holds after its last renewal.
    #[serde(rename = "claim_seconds", deserialize_with = "read::seconds")]
    #[schemars(with = "NonZeroU32")]
    pub claim: Duration,
    /// The repository for the pull requests of the forge `github`.
    pub github: ForgeGitHubSettings,
}

/// `[forge.github]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgeGitHubSettings {
    /// The repository, if not that of the remote `origin`.
    #[serde(default, deserialize_with = "read::repository")]
    #[schemars(with = "Option<String>")]
    pub repository: Option<RepositoryName>,
    /// The address for git, without a trailing slash.
    #[serde(deserialize_with = "read::base_url")]
    pub url: String,
    /// The address of the API, without a trailing slash.
    #[serde(deserialize_with = "read::base_url")]
    pub api_url: String,
    /// How many writes are made in a minute at most.
    pub writes_per_minute: NonZeroU32,
    /// How many writes are made in an hour at most.
    pub writes_per_hour: NonZeroU32,
}

/// `[task]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSettings {
    /// The minimum number of checkboxes.
    pub min_checkboxes: NonZeroU32,
    /// The command that gets what the others need, for tasks that name none.
    #[serde(default)]
    pub setup_command: Option<String>,
    /// The command that must succeed in the end, for issues.
    #[serde(default)]
    pub test_command: Option<String>,
    /// The commands that verify each step of an issue.
    pub verify_commands: Vec<String>,
}

/// `[prompt]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptSettings {
    /// The maximum size of a prompt.
    pub max_bytes: NonZeroU32,
}

fn cpus_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "number"] })
}
