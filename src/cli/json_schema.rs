//! The schemas of what commands print with `--json`.

use std::fmt::Write;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::api_token::ApiTokenRow;
use super::environment::EnvironmentReport;
use super::evidence::VerifiedOutput;
use super::gateway::GatewayCheck;
use super::image::{
    BuildReport, CheckReport, PlanReport, ProviderBuild, ProviderPruneRow, ProviderStatus, PruneRow,
    PullReport, PushReport, StatusReport,
};
use super::models::PriceReport;
use super::network::NetworkCheck;
use super::selftest::SelftestReport;
use super::token::TokenStatus;
use crate::assembly::{ModelOverview, NetworkUse, RunStatus};
use crate::config::show::ConfigRow;
use crate::event::Event;
use crate::evidence::EvidenceStatement;
use crate::sandbox::SandboxListing;
use crate::sandbox::escapes::EscapeReport;
use crate::task::TaskError;

/// The version of all shapes. It grows when a field is removed or changes its type or meaning; new fields do not change it.
const VERSION: u32 = 1;

/// The schema of a type.
type TypeSchema = fn(&mut SchemaGenerator) -> Schema;

/// What one or several commands print with `--json`: the name of the schema, the commands, what is printed, and the types of
/// which one is printed.
type JsonShape = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static [TypeSchema],
);

const SHAPES: &[JsonShape] = &[
    (
        "event",
        &["run", "resume", "demo", "respond", "poll", "worker", "logs"],
        "one event on each line",
        &[of::<Event>],
    ),
    (
        "lint",
        &["lint"],
        "what is wrong with the task",
        &[of::<Vec<TaskError>>],
    ),
    ("status", &["status"], "the runs", &[of::<Vec<RunStatus>>]),
    (
        "evidence-show",
        &["evidence show"],
        "the statements",
        &[of::<Vec<EvidenceStatement>>],
    ),
    (
        "evidence-verify",
        &["evidence verify"],
        "the verified statements, and the key of each",
        &[of::<Vec<VerifiedOutput>>],
    ),
    (
        "models",
        &["models"],
        "the profiles; with `--prices` the price table",
        &[of::<Vec<ModelOverview>>, of::<PriceReport>],
    ),
    (
        "doctor",
        &["doctor"],
        "with `env`: what is installed, and what a first run would use",
        &[of::<EnvironmentReport>],
    ),
    (
        "image-build",
        &["image build"],
        "what was built; with `--dry-run` the plan, with `--check` the comparison",
        &[
            of::<BuildReport>,
            of::<PlanReport>,
            of::<CheckReport>,
            of::<ProviderBuild>,
            of::<ProviderStatus>,
        ],
    ),
    ("image-pull", &["image pull"], "the image", &[of::<PullReport>]),
    ("image-push", &["image push"], "the image", &[of::<PushReport>]),
    (
        "image-status",
        &["image status"],
        "the planned image, and all images",
        &[of::<StatusReport>, of::<ProviderStatus>],
    ),
    (
        "image-prune",
        &["image prune"],
        "each image, kept or removed",
        &[of::<Vec<PruneRow>>, of::<Vec<ProviderPruneRow>>],
    ),
    (
        "selftest",
        &["selftest"],
        "the checks; with `--escapes` the attacks",
        &[of::<SelftestReport>, of::<EscapeReport>],
    ),
    (
        "sandboxes",
        &["sandbox ls", "sandbox prune", "prune-sandboxes"],
        "the sandboxes; with `prune` those that were removed",
        &[of::<Vec<SandboxListing>>],
    ),
    (
        "network-check",
        &["network check"],
        "the verdict",
        &[of::<NetworkCheck>],
    ),
    (
        "network-suggest",
        &["network suggest"],
        "what was reached, and what was blocked",
        &[of::<NetworkUse>],
    ),
    (
        "gateway-check",
        &["gateway check"],
        "the checks",
        &[of::<Vec<GatewayCheck>>],
    ),
    (
        "token-check",
        &["token check", "check-token"],
        "the credential",
        &[of::<TokenStatus>],
    ),
    (
        "config-show",
        &["config show"],
        "every key",
        &[of::<Vec<ConfigRow>>],
    ),
    (
        "api-token-list",
        &["api-token list"],
        "the tokens",
        &[of::<Vec<ApiTokenRow>>],
    ),
];

/// The schemas of what commands print with `--json`, each with the path of its file below `docs/reference`.
#[must_use]
pub fn json_schemas() -> Vec<(String, Value)> {
    let file = |name: &str| format!("json/v{VERSION}/{name}.schema.json");
    SHAPES
        .iter()
        .map(|(name, commands, what, types)| (file(name), schema(name, commands, what, types)))
        .collect()
}

/// The reference page of what commands print with `--json`, as `docs/reference/json.md` holds it.
#[must_use]
pub fn json_reference() -> String {
    let mut page = format!("{INTRO}\n| command | prints | schema |\n|---|---|---|\n");
    for ((name, commands, what, _), (file, _)) in SHAPES.iter().zip(json_schemas()) {
        let commands: Vec<String> = commands.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {} | {what} | [{name}]({file}) |", commands.join(", "));
    }
    page
}

const INTRO: &str = "\
# JSON output

<!-- Generated; do not edit. `RALPH_UPDATE_REFERENCE=1 cargo test` rewrites it. -->

Commands with `--json` print JSON on stdout, and messages for people on stderr. Each shape has a JSON schema (draft 2020-12).
Its `$id` ends with the version. Within a version fields and events may be added, so a reader must ignore what it does not
know; a field that is removed, or changes its type or meaning, makes a new version. An error is
reported by the exit code and on stderr.
";

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn schema(name: &str, commands: &[&str], what: &str, types: &[TypeSchema]) -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let types: Vec<Schema> = types.iter().map(|of| of(&mut generator)).collect();
    let commands: Vec<String> = commands
        .iter()
        .map(|name| format!("ralph {name} --json"))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("{}/json/{name}/v{VERSION}", env!("CARGO_PKG_REPOSITORY")),
        "title": commands.join(", "),
        "description": what,
        "anyOf": types,
        "$defs": generator.take_definitions(true),
    })
}

#[cfg(test)]
mod tests {
    use super::super::help;
    use super::*;

    /// The commands with `--json`.
    fn with_json(command: &clap::Command, parent: &str) -> Vec<String> {
        let children = command.get_subcommands();
        children
            .flat_map(|child| {
                let path = format!("{parent}{}", child.get_name());
                let below = with_json(child, &format!("{path} "));
                let has_json = child
                    .get_arguments()
                    .any(|argument| argument.get_long() == Some("json"));
                [has_json.then_some(path).into_iter().collect(), below].concat()
            })
            .collect()
    }

    #[test]
    fn every_command_with_json_has_one_schema() {
        let mut described: Vec<&str> = SHAPES
            .iter()
            .flat_map(|(_, commands, ..)| *commands)
            .copied()
            .collect();
        let mut commands = with_json(&help::command(help::WIDTH), "");
        described.sort_unstable();
        commands.sort_unstable();
        assert_eq!(described, commands);
    }
}
