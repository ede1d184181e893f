//! Settings given on the command line, and the configuration with them.

use std::path::PathBuf;

use crate::assembly::configuration::{self, GivenSettings, TaskFile};
use crate::config::{Config, Override, Place};

use super::error::CliError;
use super::{Context, Global};

/// The flags that were given, as overrides: flag, configuration key and value.
pub(super) fn flags<const N: usize>(flags: [(&str, &str, Option<String>); N]) -> Vec<Override> {
    let given = flags
        .into_iter()
        .filter_map(|(flag, key, value)| Some(flag_override(flag.to_owned(), key, value?)));
    given.collect()
}

fn flag_override(flag: String, key: &str, value: String) -> Override {
    Override {
        key: key.to_owned(),
        value,
        place: Place::Flag(flag),
    }
}

/// Reads the configuration and shows its warnings. `flags` are the command's own; `--set` adds to them.
pub(super) fn configuration(
    context: &Context,
    task: Option<&TaskFile>,
    flags: Vec<Override>,
) -> Result<Config, CliError> {
    let given = context.global.given(flags)?;
    Ok(configuration::load(&context.assembly, task, &given)?)
}

/// The configuration without a task and without its warnings, for a look at one setting.
pub(super) fn configuration_quietly(context: &Context, project: PathBuf) -> Result<Config, CliError> {
    let given = context.global.given(Vec::new())?;
    Ok(configuration::load_quietly(&context.assembly, project, &given)?)
}

impl Global {
    /// The flags of a command with what `--config` and `--set` give.
    pub(super) fn given(&self, flags: Vec<Override>) -> Result<GivenSettings, CliError> {
        let split = |text: &String| {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                CliError::usage(format!("`--set {text}` is no KEY=VALUE"))
                    .hint("for example `--set budget.max_iterations=5`; `ralph config show` lists the keys")
            })?;
            let key = key.trim();
            Ok(flag_override(
                format!("--set {key}"),
                key,
                value.trim().to_owned(),
            ))
        };
        let set = self.set.iter().map(split);
        Ok(GivenSettings {
            config_file: self.config.clone(),
            overrides: flags
                .into_iter()
                .map(Ok)
                .chain(set)
                .collect::<Result<_, CliError>>()?,
        })
    }
}
