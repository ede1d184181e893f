//! `.cargo/config.toml`: `[source]` and `[registries]`.

use toml::{Table, Value};

use super::{ClientFile, Clients, Found, InImage, or_default};

/// The sparse index, where crates are, and the API that redirects there.
const DEFAULT: [&str; 3] = ["index.crates.io", "static.crates.io", "crates.io"];
const IN_PROJECT: [&str; 2] = [".cargo/config.toml", ".cargo/config"];
pub(super) const IN_IMAGE: InImage = InImage {
    paths: &[
        "usr/local/cargo/config.toml",
        "root/.cargo/config.toml",
        "root/.cargo/config",
        "home/agent/.cargo/config.toml",
    ],
    variables: &[("CARGO_HOME", "/config.toml"), ("CARGO_HOME", "/config")],
};

/// A source that replaces crates.io replaces the default; other registries add to it.
pub(super) fn hosts(clients: &Clients<'_>) -> Vec<Found> {
    let mut replacing = Vec::new();
    let mut adding = Vec::new();
    for file in clients.files(&IN_PROJECT, &IN_IMAGE.paths(clients.env)) {
        let Ok(config) = file.text.parse::<Table>() else {
            continue;
        };
        replacing.extend(replacement(&config).and_then(|url| found(&file, url)));
        let registries = config.get("registries").and_then(Value::as_table);
        let indexes = registries.into_iter().flat_map(Table::values);
        adding.extend(indexes.filter_map(|registry| found(&file, registry.get("index")?.as_str()?)));
    }
    for (name, _) in clients.env.iter().filter(|(name, _)| is_index(name)) {
        adding.extend(clients.variable(name, &[]));
    }
    or_default(replacing, adding, &DEFAULT)
}

/// Where crates.io is replaced with, followed from source to source.
fn replacement(config: &Table) -> Option<&str> {
    let sources = config.get("source")?.as_table()?;
    let mut name = "crates-io";
    // No chain is longer than there are sources; one that is goes in a circle.
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

fn found(file: &ClientFile, url: &str) -> Option<Found> {
    let line = file.text.lines().position(|line| line.contains(url))? + 1;
    Found::from_url(url, format!("{}:{line}", file.shown))
}
