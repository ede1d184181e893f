//! The linter, for an editor of tasks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::configuration::{GivenSettings, load};
use crate::task::lint;

use super::Api;
use super::extract::JsonBody;
use super::problem::{LintFinding, Problem};
use super::steer::TaskText;

/// What the linter found.
#[derive(Serialize, JsonSchema)]
pub(super) struct LintReport {
    /// The findings, by line.
    findings: Vec<LintFinding>,
}

/// Checks the text of a task, and changes nothing.
pub(super) async fn check(
    State(api): State<Arc<Api>>,
    JsonBody(task): JsonBody<TaskText>,
) -> Result<Json<LintReport>, Problem> {
    let config = load(&api.context(), None, &GivenSettings::default())?;
    let min_checkboxes = config.settings.task.min_checkboxes.get() as usize;
    let findings = lint(Some(&task.text), min_checkboxes);
    Ok(Json(LintReport {
        findings: findings.iter().map(LintFinding::new).collect(),
    }))
}
