//! Settings from the command line, and the configuration that includes them.

use crate::assembly::configuration::{self, GivenSettings};
use crate::config::{Config, ConfigOverride, SettingPlace};

use super::{CliError, Context, GlobalArgs};

/// The flags that were given, each as flag, configuration key and value.
pub(super) fn flags<const N: usize>(flags: [(&str, &str, Option<String>); N]) -> Vec<ConfigOverride> {
    let given =
        |(flag, key, value): (&str, &str, Option<String>)| Some(flag_override(flag.to_owned(), key, value?));
    flags.into_iter().filter_map(given).collect()
}

/// The options of a command that uses the same provider and agent, each with a space before it.
pub(super) fn choice_options(provider: Option<&str>, agent: Option<&str>) -> String {
    let provider = provider.map(|name| format!(" --type {name}"));
    let agent = agent.map(|name| format!(" --agent {name}"));
    [provider, agent].into_iter().flatten().collect()
}

fn flag_override(flag: String, key: &str, value: String) -> ConfigOverride {
    ConfigOverride {
        key: key.to_owned(),
        value,
        place: SettingPlace::Flag(flag),
    }
}

/// Reads the configuration of the current directory and shows its warnings.
pub(super) fn configuration(context: &Context, flags: Vec<ConfigOverride>) -> Result<Config, CliError> {
    let given = context.global.given(flags)?;
    configuration::load(&context.assembly, None, &given)
}

/// Like [`configuration`], for a command whose run shows the warnings.
pub(super) fn quiet_configuration(context: &Context, flags: Vec<ConfigOverride>) -> Result<Config, CliError> {
    let given = context.global.given(flags)?;
    let project = configuration::project_dir(context.surroundings().dir());
    configuration::load_quietly(&context.assembly, project, &given)
}

impl GlobalArgs {
    /// The flags of a command, followed by what `--config` and `--set` give.
    pub(super) fn given(&self, flags: Vec<ConfigOverride>) -> Result<GivenSettings, CliError> {
        let mut overrides = flags;
        for text in &self.set {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                CliError::usage(format!("`--set {text}` is not KEY=VALUE")).with_hint(
                    "for example `--set budget.max_iterations=5`; `ralph config show` lists the keys",
                )
            })?;
            let (key, value) = (key.trim(), value.trim().to_owned());
            overrides.push(flag_override(format!("--set {key}"), key, value));
        }
        Ok(GivenSettings {
            config_file: self.config.clone(),
            overrides,
        })
    }
}
