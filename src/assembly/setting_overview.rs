//! The configuration of the service: every value with where it comes from.

use schemars::JsonSchema;
use serde::Serialize;

use crate::secret::Redactor;
use crate::state::StateError;

use super::configuration::{GivenSettings, load_quietly, project_dir};
use super::{AssemblyContext, AssemblyError};

/// A setting, as `ralph config show` prints it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingOverview {
    /// The key, or `env.NAME` for a credential.
    pub key: String,
    /// The value; `null` when it is not set, `***` when it is secret.
    pub value: serde_json::Value,
    /// The layer that set it: `default`, `user`, `project`, `task`, `env` or `flag`.
    pub layer: String,
    /// Where: a file with line and column, a variable or a flag.
    pub source: String,
}

impl SettingOverview {
    /// All settings that runs of the directory of this process would have, by key. Known secrets are replaced.
    pub(crate) fn all(context: &AssemblyContext) -> Result<Vec<Self>, AssemblyError> {
        let project = project_dir(context.surroundings.dir());
        let config = load_quietly(context, project, &GivenSettings::default())?;
        let redactor = Redactor::new(config.secrets());
        let rows = config.rows().into_iter();
        rows.map(|row| {
            let value = redactor.redact_json(row.value);
            Ok(Self {
                key: row.key,
                value: value.map_err(StateError::encode("setting"))?,
                layer: row.layer.to_string(),
                source: row.source,
            })
        })
        .collect()
    }
}
