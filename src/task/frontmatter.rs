//! The settings at the beginning of a task file.

use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

use crate::id::NameError;
use crate::usage::Usd;

use super::document::value_positions;
use super::error::TaskError;
use super::fields::FrontmatterFields;
use super::name::{BranchName, Slug, TaskId};
use super::yaml::YamlEntry;

/// The settings of a task. For `None`, the configuration decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontmatter {
    /// The id of the task.
    pub task_id: TaskId,
    /// The repository. `None` is the one that contains the task file.
    pub repo_url: Option<String>,
    /// The branch to start from.
    pub base_branch: Option<BranchName>,
    /// The first part of the run's branch name.
    pub target_branch_prefix: Option<BranchName>,
    /// The last part of the run's branch name.
    pub slug: Option<Slug>,
    /// The sandbox provider.
    pub sandbox_provider: Option<String>,
    /// The image of the sandbox.
    pub sandbox_image: Option<String>,
    /// The size of the sandbox.
    pub sandbox_resources: SandboxResources,
    /// The first model profile.
    pub model_profile_default: Option<String>,
    /// The fallback model profile.
    pub model_profile_fallback: Option<String>,
    /// Limit on iterations.
    pub max_iterations: Option<NonZeroU32>,
    /// Limit on minutes.
    pub max_wall_time_minutes: Option<NonZeroU32>,
    /// Limit on the cost.
    pub max_cost_usd_estimate: Option<Usd>,
    /// Limit on tokens.
    pub max_tokens_total: Option<NonZeroU64>,
    /// Limit on consecutive gutters.
    pub max_consecutive_gutter: Option<NonZeroU32>,
    /// The shell command that must exit with 0 before the task is done.
    pub test_command: String,
    /// The shell command that gets what the other commands need and the repository does not contain.
    pub setup_command: Option<String>,
    /// The shell commands that verify checkboxes without their own `verify:`.
    pub verify_commands: Vec<String>,
    /// Options of the pull request.
    pub pr: PullRequestOptions,
}

/// The size of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxResources {
    /// Processors.
    pub vcpu: Option<NonZeroU32>,
    /// Memory in GiB.
    pub memory_gib: Option<NonZeroU32>,
    /// Disk in GiB.
    pub disk_gib: Option<NonZeroU32>,
}

/// Options of the pull request of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullRequestOptions {
    /// When it is opened. Before the run is done it is a draft.
    pub when: PullRequestWhen,
    /// Whether it is a draft when the run is done.
    pub draft: bool,
    /// Its labels.
    pub labels: Vec<String>,
    /// The template of its title. `None` is the default template.
    pub title_template: Option<String>,
    /// The template of its body. `None` is the default template.
    pub body_template: Option<String>,
}

/// When a pull request is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullRequestWhen {
    /// After the first iteration that leaves a commit.
    FirstPush,
    /// After the first iteration that ticks a box.
    Progress,
    /// When the run is done.
    #[default]
    Done,
}

impl FromStr for PullRequestWhen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "first-push" => Ok(Self::FirstPush),
            "progress" => Ok(Self::Progress),
            "done" => Ok(Self::Done),
            _ => Err(()),
        }
    }
}

impl Frontmatter {
    /// The settings that the task sets, by their configuration keys. These are the task layer of the configuration.
    #[must_use]
    pub fn overrides(&self) -> Vec<(&'static str, String)> {
        let settings = self.settings();
        settings.map(|(key, _, value)| (key, value)).collect()
    }

    /// The same, each with the line and the column of its value in the text of the task.
    pub(crate) fn placed_overrides(&self, text: &str) -> Vec<(&'static str, String, (usize, usize))> {
        let positions = value_positions(text);
        let place = |task_key: &str| positions.get(task_key).copied().unwrap_or((1, 1));
        let settings = self.settings();
        settings
            .map(|(key, task_key, value)| (key, value, place(task_key)))
            .collect()
    }

    /// The settings that the task sets: the key of the configuration, that of the task, and the value.
    fn settings(&self) -> impl Iterator<Item = (&'static str, &'static str, String)> {
        let gib = |size: Option<NonZeroU32>| size.map(|gib| format!("{gib}g"));
        let resources = self.sandbox_resources;
        let cost = self.max_cost_usd_estimate.map(Usd::dollars);
        let all = [
            ("sandbox.type", "sandbox_provider", self.sandbox_provider.clone()),
            ("sandbox.image", "sandbox_image", self.sandbox_image.clone()),
            (
                "sandbox.resources.cpus",
                "sandbox_resources.vcpu",
                text(resources.vcpu),
            ),
            (
                "sandbox.resources.memory",
                "sandbox_resources.memory_gib",
                gib(resources.memory_gib),
            ),
            (
                "sandbox.resources.disk",
                "sandbox_resources.disk_gib",
                gib(resources.disk_gib),
            ),
            (
                "default_profile",
                "model_profile_default",
                self.model_profile_default.clone(),
            ),
            (
                "fallback_profile",
                "model_profile_fallback",
                self.model_profile_fallback.clone(),
            ),
            (
                "budget.max_iterations",
                "max_iterations",
                text(self.max_iterations),
            ),
            (
                "budget.max_wall_time_minutes",
                "max_wall_time_minutes",
                text(self.max_wall_time_minutes),
            ),
            (
                "budget.max_cost_usd_estimate",
                "max_cost_usd_estimate",
                text(cost),
            ),
            (
                "budget.max_tokens_total",
                "max_tokens_total",
                text(self.max_tokens_total),
            ),
            (
                "budget.max_consecutive_gutter",
                "max_consecutive_gutter",
                text(self.max_consecutive_gutter),
            ),
        ];
        all.into_iter()
            .filter_map(|(key, task_key, value)| Some((key, task_key, value?)))
    }

    /// Reads all keys and adds their mistakes to `errors`. `None` if a required key is missing or not valid.
    pub(super) fn read(entries: Vec<YamlEntry>, errors: &mut Vec<TaskError>) -> Option<Self> {
        let mut fields = FrontmatterFields::new(String::new(), entries, errors);
        fields.require("task_id");
        fields.require("test_command");
        let frontmatter = Self::read_keys(&mut fields);
        fields.finish();
        frontmatter
    }

    fn read_keys(fields: &mut FrontmatterFields<'_>) -> Option<Self> {
        let task_id = fields.parsed("task_id", TaskId::EXPECTED, TaskId::parse);
        let test_command = fields.text("test_command");
        Some(Self {
            repo_url: fields.parsed("repo_url", "the address of a git repository", address),
            base_branch: fields.parsed("base_branch", BranchName::EXPECTED, BranchName::parse),
            target_branch_prefix: fields.parsed("target_branch_prefix", BranchName::EXPECTED, prefix),
            slug: fields.parsed_as(["target_branch_slug", "slug"], Slug::EXPECTED, Slug::parse),
            sandbox_provider: fields.text("sandbox_provider"),
            sandbox_image: fields.text("sandbox_image"),
            sandbox_resources: fields
                .section("sandbox_resources", SandboxResources::read_keys)
                .unwrap_or_default(),
            model_profile_default: fields.text("model_profile_default"),
            model_profile_fallback: fields.text("model_profile_fallback"),
            max_iterations: fields.plain("max_iterations", COUNT, str::parse),
            max_wall_time_minutes: fields.plain("max_wall_time_minutes", COUNT, str::parse),
            max_cost_usd_estimate: fields.plain("max_cost_usd_estimate", COST, cost),
            max_tokens_total: fields.plain("max_tokens_total", COUNT, str::parse),
            max_consecutive_gutter: fields.plain("max_consecutive_gutter", COUNT, str::parse),
            setup_command: fields.text("setup_command"),
            verify_commands: fields.texts("verify_commands", "a list of shell commands, none of them blank"),
            pr: fields
                .section("pr", PullRequestOptions::read_keys)
                .unwrap_or_default(),
            // Last, so that a missing key does not prevent the others from being read.
            task_id: task_id?,
            test_command: test_command?,
        })
    }
}

fn text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

impl SandboxResources {
    fn read_keys(fields: &mut FrontmatterFields<'_>) -> Self {
        Self {
            vcpu: fields.plain("vcpu", COUNT, str::parse),
            memory_gib: fields.plain("memory_gib", COUNT, str::parse),
            disk_gib: fields.plain("disk_gib", COUNT, str::parse),
        }
    }
}

impl PullRequestOptions {
    fn read_keys(fields: &mut FrontmatterFields<'_>) -> Self {
        Self {
            when: fields
                .plain("when", "`first-push`, `progress` or `done`", str::parse)
                .unwrap_or_default(),
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

/// A trailing slash, as in `ralph/`, is not part of the prefix.
fn prefix(text: &str) -> Result<BranchName, NameError> {
    BranchName::parse(text.strip_suffix('/').unwrap_or(text))
}

/// Git must not interpret the address as an option or as a helper program (`ext::sh -c ...`).
fn address(text: &str) -> Result<String, ()> {
    let harmless = !text.starts_with('-') && !text.contains("::") && !text.contains(char::is_control);
    if harmless { Ok(text.to_owned()) } else { Err(()) }
}
