//! Which command gets the dependencies of a project, by its lock files.

/// Lock files in the root directory of a project, and the command that gets what they list.
pub const LOCK_FILES: [(&str, &str); 12] = [
    ("package-lock.json", "npm ci"),
    ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn install --frozen-lockfile"),
    ("bun.lock", "bun install --frozen-lockfile"),
    ("Cargo.lock", "cargo fetch --locked"),
    ("go.sum", "go mod download"),
    ("uv.lock", "uv sync --frozen"),
    ("poetry.lock", "poetry install"),
    ("Pipfile.lock", "pipenv sync"),
    ("Gemfile.lock", "bundle install"),
    ("composer.lock", "composer install"),
    ("mix.lock", "mix deps.get"),
];

/// A `setup_command` for a project that has these lock files. `None` if it has none.
pub fn proposed_setup(has: impl Fn(&str) -> bool) -> Option<String> {
    let commands: Vec<&str> = LOCK_FILES
        .iter()
        .filter(|(file, _)| has(file))
        .map(|(_, command)| *command)
        .collect();
    (!commands.is_empty()).then(|| commands.join(" && "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_file_that_is_there_counts() {
        assert_eq!(proposed_setup(|_| false), None);
        assert_eq!(
            proposed_setup(|file| file == "go.sum").unwrap(),
            "go mod download"
        );
        let both = proposed_setup(|file| ["Cargo.lock", "package-lock.json"].contains(&file));
        assert_eq!(both.unwrap(), "npm ci && cargo fetch --locked");
    }
}
