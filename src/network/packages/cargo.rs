//! `.cargo/config.toml`: `[source]` and `[registries]`.

use toml::{Table, Value};

use super::{ConfigFile, ConfiguredHosts, PackageClient, PackageConfig, PackageHost};

pub(super) const CLIENT: PackageClient = PackageClient {
    name: "cargo",
    // The sparse index, the host of the crates, and the API that redirects to it.
    defaults: &["index.crates.io", "static.crates.io", "crates.io"],
    project_paths: &[".cargo/config.toml", ".cargo/config"],
    image_paths: &[
        "usr/local/cargo/config.toml",
        "root/.cargo/config.toml",
        "root/.cargo/config",
        "home/agent/.cargo/config.toml",
    ],
    path_variables: &[("CARGO_HOME", "/config.toml"), ("CARGO_HOME", "/config")],
    read,
};

/// A source that replaces crates.io replaces the default; other registries add to it.
fn read(config: &PackageConfig<'_>, files: &[ConfigFile], found: &mut ConfiguredHosts) {
    for file in files {
        let Ok(config) = file.text.parse::<Table>() else {
            continue;
        };
        found
            .replacing
            .extend(replacement(&config).and_then(|url| host(file, url)));
        let registries = config.get("registries").and_then(Value::as_table);
        let indexes = registries.into_iter().flat_map(Table::values);
        found
            .adding
            .extend(indexes.filter_map(|registry| host(file, registry.get("index")?.as_str()?)));
    }
    for (name, _) in config.env.iter().filter(|(name, _)| is_index(name)) {
        found.adding.extend(config.variable(name, &[]));
    }
}

/// The registry that replaces crates.io, through any number of `replace-with`.
fn replacement(config: &Table) -> Option<&str> {
    let sources = config.get("source")?.as_table()?;
    let mut name = "crates-io";
    // A chain longer than the number of sources is a cycle.
    for _ in 0..=sources.len() {
        let source = sources.get(name)?.as_table()?;
        match source.get("replace-with").and_then(Value::as_str) {
            Some(next) => name = next,
            None => return source.get("registry")?.as_str(),
        }
    }
    None
}

fn is_index(variable: &str) -> bool {
    variable.starts_with("CARGO_REGISTRIES_") && variable.ends_with("_INDEX")
}

fn host(file: &ConfigFile, url: &str) -> Option<PackageHost> {
    let line = file.text.lines().position(|line| line.contains(url))? + 1;
    PackageHost::from_url(url, &format!("{}:{line}", file.shown))
}
