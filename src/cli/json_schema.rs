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

/// What one or several commands print with `--json`.
struct JsonShape {
    name: &'static str,
    /// Each without `ralph`; `env` of `doctor env` is an argument.
    commands: &'static [&'static str],
    /// What is printed, for people.
    what: &'static str,
    /// The types of which one is printed.
    types: &'static [TypeSchema],
}

const SHAPES: &[JsonShape] = &[
    JsonShape {
        name: "event",
        commands: &["run", "resume", "demo", "respond", "poll", "worker", "logs"],
        what: "one event on each line",
        types: &[of::<Event>],
    },
    JsonShape {
        name: "lint",
        commands: &["lint"],
        what: "what is wrong with the task",
        types: &[of::<Vec<TaskError>>],
    },
    JsonShape {
        name: "status",
        commands: &["status"],
        what: "the runs",
        types: &[of::<Vec<RunStatus>>],
    },
    JsonShape {
        name: "evidence-show",
        commands: &["evidence show"],
        what: "the statements",
        types: &[of::<Vec<EvidenceStatement>>],
    },
    JsonShape {
        name: "evidence-verify",
        commands: &["evidence verify"],
        what: "the verified statements, and the key of each",
        types: &[of::<Vec<VerifiedOutput>>],
    },
    JsonShape {
        name: "models",
        commands: &["models"],
        what: "the profiles; with `--prices` the price table",
        types: &[of::<Vec<ModelOverview>>, of::<PriceReport>],
    },
    JsonShape {
        name: "doctor",
        commands: &["doctor env"],
        what: "what is installed, and what a first run would use",
        types: &[of::<EnvironmentReport>],
    },
    JsonShape {
        name: "image-build",
        commands: &["image build"],
        what: "what was built; with `--dry-run` the plan, with `--check` the comparison",
        types: &[
            of::<BuildReport>,
            of::<PlanReport>,
            of::<CheckReport>,
            of::<ProviderBuild>,
            of::<ProviderStatus>,
        ],
    },
    JsonShape {
        name: "image-pull",
        commands: &["image pull"],
        what: "the image",
        types: &[of::<PullReport>],
    },
    JsonShape {
        name: "image-push",
        commands: &["image push"],
        what: "the image",
        types: &[of::<PushReport>],
    },
    JsonShape {
        name: "image-status",
        commands: &["image status"],
        what: "the planned image, and all images",
        types: &[of::<StatusReport>, of::<ProviderStatus>],
    },
    JsonShape {
        name: "image-prune",
        commands: &["image prune"],
        what: "each image, kept or removed",
        types: &[of::<Vec<PruneRow>>, of::<Vec<ProviderPruneRow>>],
    },
    JsonShape {
        name: "selftest",
        commands: &["selftest"],
        what: "the checks; with `--escapes` the attacks",
        types: &[of::<SelftestReport>, of::<EscapeReport>],
    },
    JsonShape {
        name: "sandboxes",
        commands: &["sandbox ls", "sandbox prune", "prune-sandboxes"],
        what: "the sandboxes; with `prune` those that were removed",
        types: &[of::<Vec<SandboxListing>>],
    },
    JsonShape {
        name: "network-check",
        commands: &["network check"],
        what: "the verdict",
        types: &[of::<NetworkCheck>],
    },
    JsonShape {
        name: "network-suggest",
        commands: &["network suggest"],
        what: "what was reached, and what was blocked",
        types: &[of::<NetworkUse>],
    },
    JsonShape {
        name: "gateway-check",
        commands: &["gateway check"],
        what: "the checks",
        types: &[of::<Vec<GatewayCheck>>],
    },
    JsonShape {
        name: "token-check",
        commands: &["token check", "check-token"],
        what: "the credential",
        types: &[of::<TokenStatus>],
    },
    JsonShape {
        name: "config-show",
        commands: &["config show"],
        what: "every key",
        types: &[of::<Vec<ConfigRow>>],
    },
    JsonShape {
        name: "api-token-list",
        commands: &["api-token list"],
        what: "the tokens",
        types: &[of::<Vec<ApiTokenRow>>],
    },
];

/// The schemas of what commands print with `--json`, each with the path of its file below `docs/reference`.
#[must_use]
pub fn json_schemas() -> Vec<(String, Value)> {
    let file = |name: &str| format!("json/v{VERSION}/{name}.schema.json");
    SHAPES
        .iter()
        .map(|shape| (file(shape.name), shape.schema()))
        .collect()
}

/// The reference page of what commands print with `--json`, as `docs/reference/json.md` holds it.
#[must_use]
pub fn json_reference() -> String {
    let mut page = format!("{INTRO}\n| command | prints | schema |\n|---|---|---|\n");
    for (shape, (file, _)) in SHAPES.iter().zip(json_schemas()) {
        let JsonShape { name, what, .. } = shape;
        let commands: Vec<String> = shape.commands.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {} | {what} | [{name}]({file}) |", commands.join(", "));
    }
    page
}

const INTRO: &str = "\
# JSON output

<!-- Generated; do not edit. `RALPH_UPDATE_REFERENCE=1 cargo test` rewrites it. -->

Commands with `--json` print JSON on stdout, and messages for people on stderr, without the line `next:`. Each shape has a JSON schema (draft 2020-12).
Its `$id` ends with the version. Within a version fields and events may be added, so a reader must ignore what it does not
know; a field that is removed, or changes its type or meaning, makes a new version. An error is
reported by the exit code and on stderr.
";

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl JsonShape {
    fn schema(&self) -> Value {
        let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let types: Vec<Schema> = self.types.iter().map(|of| of(&mut generator)).collect();
        let commands = self.commands.iter();
        let commands: Vec<String> = commands.map(|name| format!("ralph {name} --json")).collect();
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": format!("{}/json/{}/v{VERSION}", env!("CARGO_PKG_REPOSITORY"), self.name),
            "title": commands.join(", "),
            "description": self.what,
            "anyOf": types,
            "$defs": generator.take_definitions(true),
        })
    }
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
            .flat_map(|shape| shape.commands)
            .map(|command| command.trim_end_matches(" env"))
            .collect();
        let mut commands = with_json(&help::command(help::WIDTH), "");
        described.sort_unstable();
        commands.sort_unstable();
        assert_eq!(described, commands);
    }
}
