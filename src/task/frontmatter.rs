//! The settings at the head of a task file.

use std::num::{NonZeroU32, NonZeroU64};

use crate::usage::Usd;

use super::error::TaskError;
use super::fields::Fields;
use super::name::{BranchName, NameError, Slug, TaskId};
use super::yaml::Entry;

/// The settings of a task. What is `None` is left to the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontmatter {
    /// The name of the task.
    pub task_id: TaskId,
    /// The repository to work on; the one around the task file when `None`.
    pub repo_url: Option<String>,
    /// The branch to begin from.
    pub base_branch: Option<BranchName>,
    /// What the branch of the run begins with.
    pub target_branch_prefix: Option<BranchName>,
    /// What the branch of the run ends with.
    pub slug: Option<Slug>,
    /// Which provider makes the sandbox.
    pub sandbox_provider: Option<String>,
    /// The image the sandbox starts from.
    pub sandbox_image: Option<String>,
    /// How large the sandbox is.
    pub sandbox_resources: SandboxResources,
    /// The model profile to begin with.
    pub model_profile_default: Option<String>,
    /// The model profile to fall back to.
    pub model_profile_fallback: Option<String>,
    /// After how many iterations the run ends.
    pub max_iterations: Option<NonZeroU32>,
    /// After how many minutes the run ends.
    pub max_wall_time_minutes: Option<NonZeroU32>,
    /// What the run may cost.
    pub max_cost_usd_estimate: Option<Usd>,
    /// How many tokens the run may use.
    pub max_tokens_total: Option<NonZeroU64>,
    /// After how many gutters in a row the run ends.
    pub max_consecutive_gutter: Option<NonZeroU32>,
    /// The shell line that must exit 0 before anything counts as done.
    pub test_command: String,
    /// The shell lines that verify a checkbox without a `verify:` of its own.
    pub verify_commands: Vec<String>,
    /// How the pull request looks.
    pub pr: PullRequestOptions,
}

/// How large a sandbox is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxResources {
    /// Processors.
    pub vcpu: Option<NonZeroU32>,
    /// Memory in GiB.
    pub memory_gib: Option<NonZeroU32>,
    /// Disk in GiB.
    pub disk_gib: Option<NonZeroU32>,
}

/// How the pull request of a task looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullRequestOptions {
    /// Whether it is opened as a draft.
    pub draft: bool,
    /// Its labels.
    pub labels: Vec<String>,
    /// The template of its title; ralph's own when `None`.
    pub title_template: Option<String>,
    /// The template of its body; ralph's own when `None`.
    pub body_template: Option<String>,
}

impl Frontmatter {
    /// The settings as the configuration names them, for its task layer. Only what the task sets is there.
    #[must_use]
    pub fn overrides(&self) -> Vec<(&'static str, String)> {
        let resources = self.sandbox_resources;
        let pairs = [
            ("sandbox.type", self.sandbox_provider.clone()),
            ("sandbox.image", self.sandbox_image.clone()),
            (
                "sandbox.resources.cpus",
                resources.vcpu.map(|count| count.to_string()),
            ),
            (
                "sandbox.resources.memory",
                resources.memory_gib.map(|gib| format!("{gib}g")),
            ),
            (
                "sandbox.resources.disk",
                resources.disk_gib.map(|gib| format!("{gib}g")),
            ),
            ("default_profile", self.model_profile_default.clone()),
            ("fallback_profile", self.model_profile_fallback.clone()),
            (
                "budget.max_iterations",
                self.max_iterations.map(|count| count.to_string()),
            ),
            (
                "budget.max_wall_time_minutes",
                self.max_wall_time_minutes.map(|count| count.to_string()),
            ),
            (
                "budget.max_cost_usd_estimate",
                self.max_cost_usd_estimate.map(|cost| cost.dollars().to_string()),
            ),
            (
                "budget.max_tokens_total",
                self.max_tokens_total.map(|count| count.to_string()),
            ),
            (
                "budget.max_consecutive_gutter",
                self.max_consecutive_gutter.map(|count| count.to_string()),
            ),
        ];
        pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    /// Reads all keys and notes everything that is wrong with them. `None` when a required one is not usable.
    pub(super) fn read(entries: Vec<Entry>, errors: &mut Vec<TaskError>) -> Option<Self> {
        let mut fields = Fields::new("", entries, errors);
        fields.require("task_id");
        fields.require("test_command");
        let frontmatter = Self::read_keys(&mut fields);
        fields.finish();
        frontmatter
    }

    fn read_keys(fields: &mut Fields<'_>) -> Option<Self> {
        let task_id = fields.shaped("task_id", TaskId::EXPECTED, TaskId::parse);
        let test_command = fields.text("test_command");
        Some(Self {
            repo_url: fields.shaped("repo_url", "the address of a git repository", address),
            base_branch: fields.shaped("base_branch", BranchName::EXPECTED, BranchName::parse),
            target_branch_prefix: fields.shaped("target_branch_prefix", BranchName::EXPECTED, prefix),
            slug: fields.shaped("slug", Slug::EXPECTED, Slug::parse),
            sandbox_provider: fields.text("sandbox_provider"),
            sandbox_image: fields.text("sandbox_image"),
            sandbox_resources: fields
                .section(
                    "sandbox_resources",
                    "sandbox_resources.",
                    SandboxResources::read_keys,
                )
                .unwrap_or_default(),
            model_profile_default: fields.text("model_profile_default"),
            model_profile_fallback: fields.text("model_profile_fallback"),
            max_iterations: fields.plain("max_iterations", COUNT, str::parse),
            max_wall_time_minutes: fields.plain("max_wall_time_minutes", COUNT, str::parse),
            max_cost_usd_estimate: fields.plain("max_cost_usd_estimate", COST, cost),
            max_tokens_total: fields.plain("max_tokens_total", COUNT, str::parse),
            max_consecutive_gutter: fields.plain("max_consecutive_gutter", COUNT, str::parse),
            verify_commands: fields.texts("verify_commands", "a list of shell commands, none of them blank"),
            pr: fields
                .section("pr", "pr.", PullRequestOptions::read_keys)
                .unwrap_or_default(),
            // Last, so that a missing one does not keep the others from being read.
            task_id: task_id?,
            test_command: test_command?,
        })
    }
}

impl SandboxResources {
    fn read_keys(fields: &mut Fields<'_>) -> Self {
        Self {
            vcpu: fields.plain("vcpu", COUNT, str::parse),
            memory_gib: fields.plain("memory_gib", COUNT, str::parse),
            disk_gib: fields.plain("disk_gib", COUNT, str::parse),
        }
    }
}

impl PullRequestOptions {
    fn read_keys(fields: &mut Fields<'_>) -> Self {
        Self {
            draft: fields
                .plain("draft", "`true` or `false`", str::parse)
                .unwrap_or_default(),
            labels: fields.texts("labels", "a list of labels, none of them blank"),
            title_template: fields.template("title_template"),
            body_template: fields.template("body_template"),
        }
    }
}

const COUNT: &str = "a whole number above 0";
const COST: &str = "a number of dollars above 0";

fn cost(text: &str) -> Result<Usd, ()> {
    let cost = text.parse().ok().and_then(Usd::from_dollars).ok_or(())?;
    if cost > Usd::ZERO { Ok(cost) } else { Err(()) }
}

/// `ralph/` is how people write a prefix; the slash is not part of it.
fn prefix(text: &str) -> Result<BranchName, NameError> {
    BranchName::parse(text.strip_suffix('/').unwrap_or(text))
}

/// git must not take the address for an option, nor for a helper program (`ext::sh -c ...`).
fn address(text: &str) -> Result<String, ()> {
    let harmless = !text.starts_with('-') && !text.contains("::") && !text.contains(char::is_control);
    if harmless { Ok(text.to_owned()) } else { Err(()) }
}
