//! What a project is, by the files in its root directory: its language, test command, set-up, flake and CI.

use super::setup::proposed_setup;

/// What is known about a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectFacts {
    /// The language, for people.
    pub language: Option<&'static str>,
    /// Runs its tests.
    pub test_command: Option<String>,
    /// Gets its dependencies.
    pub setup_command: Option<String>,
    /// Whether it has a Nix flake.
    pub has_flake: bool,
    /// The file or directory of its CI.
    pub ci: Option<&'static str>,
}

/// Files of languages, with the command that runs their tests.
const LANGUAGES: [(&str, &str, &str); 9] = [
    ("Cargo.toml", "Rust", "cargo test"),
    ("go.mod", "Go", "go test ./..."),
    ("pyproject.toml", "Python", "python3 -m pytest"),
    ("setup.py", "Python", "python3 -m pytest"),
    ("requirements.txt", "Python", "python3 -m pytest"),
    ("mix.exs", "Elixir", "mix test"),
    ("Gemfile", "Ruby", "bundle exec rake test"),
    ("composer.json", "PHP", "composer test"),
    ("build.gradle.kts", "Kotlin", "./gradlew test"),
];

/// Lock files of package managers that run the scripts of `package.json`.
const SCRIPT_RUNNERS: [(&str, &str); 3] = [
    ("pnpm-lock.yaml", "pnpm test"),
    ("yarn.lock", "yarn test"),
    ("bun.lock", "bun run test"),
];

const CI_FILES: [&str; 5] = [
    ".github/workflows",
    ".gitlab-ci.yml",
    ".circleci/config.yml",
    ".buildkite",
    "Jenkinsfile",
];

impl ProjectFacts {
    /// Looks at the root directory: `has` is whether a path exists, `read` returns the text of a file.
    pub fn detect(has: impl Fn(&str) -> bool, read: impl Fn(&str) -> Option<String>) -> Self {
        let language = LANGUAGES.iter().find(|(file, _, _)| has(file));
        let is_node = has("package.json");
        let name = language.map(|(_, name, _)| *name);
        let of_language = language.map(|(_, _, command)| *command);
        let test_command = make_test(&read)
            .or_else(|| node_test(&has, &read))
            .or_else(|| has("uv.lock").then_some("uv run pytest"))
            .or(of_language)
            .or_else(|| has("test.sh").then_some("sh test.sh"));
        Self {
            language: name.or_else(|| is_node.then_some("JavaScript")),
            test_command: test_command.map(str::to_owned),
            setup_command: proposed_setup(&has),
            has_flake: has("flake.nix"),
            ci: CI_FILES.into_iter().find(|file| has(file)),
        }
    }

    /// One line for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut parts = vec![self.language.unwrap_or("no known language").to_owned()];
        parts.push(match &self.test_command {
            Some(command) => format!("tests by `{command}`"),
            None => "no test command found".to_owned(),
        });
        parts.extend(
            self.setup_command
                .iter()
                .map(|command| format!("set up by `{command}`")),
        );
        parts.extend(self.has_flake.then(|| "a flake".to_owned()));
        parts.extend(self.ci.map(|ci| format!("CI in {ci}")));
        parts.join(", ")
    }
}

/// A project that has `make test` means it.
fn make_test(read: &impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let text = read("Makefile")?;
    let is_target = |line: &str| line.split(':').next() == Some("test") && line.contains(':');
    text.lines().any(is_target).then_some("make test")
}

fn node_test(has: &impl Fn(&str) -> bool, read: &impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let package: serde_json::Value = serde_json::from_str(&read("package.json")?).ok()?;
    package["scripts"]["test"].as_str()?;
    let runner = SCRIPT_RUNNERS.iter().find(|(file, _)| has(file));
    Some(runner.map_or("npm test", |(_, command)| command))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::rust(&[("Cargo.toml", ""), ("Cargo.lock", ""), ("flake.nix", "")],
        "Rust, tests by `cargo test`, set up by `cargo fetch --locked`, a flake")]
    #[case::node(&[("package.json", r#"{"scripts": {"test": "jest"}}"#), ("pnpm-lock.yaml", "")],
        "JavaScript, tests by `pnpm test`, set up by `pnpm install --frozen-lockfile`")]
    #[case::node_without_tests(&[("package.json", "{}")], "JavaScript, no test command found")]
    #[case::make_wins(&[("go.mod", ""), ("Makefile", "build:\n\tgo build\ntest: build\n\tgo test ./...\n")],
        "Go, tests by `make test`")]
    #[case::uv(&[("pyproject.toml", ""), ("uv.lock", ""), (".gitlab-ci.yml", "")],
        "Python, tests by `uv run pytest`, set up by `uv sync --frozen`, CI in .gitlab-ci.yml")]
    #[case::shell(&[("test.sh", "")], "no known language, tests by `sh test.sh`")]
    #[case::nothing(&[], "no known language, no test command found")]
    fn a_project_is_known_by_its_files(#[case] files: &[(&str, &str)], #[case] expected: &str) {
        let read = |name: &str| {
            let found = files.iter().find(|(file, _)| *file == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        let facts = ProjectFacts::detect(|name| read(name).is_some(), read);
        assert_eq!(facts.summary(), expected);
    }
}
