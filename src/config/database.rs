//! `RALPH_DB_URL`: the address of the store. It may contain a password, so no configuration file has a key for it.

use std::path::Path;

use super::layer::SettingPlace;
use super::loaded::Config;
use crate::secret::Secret;

/// The variable that holds the address.
const VARIABLE: &str = "RALPH_DB_URL";

impl Config {
    /// The address of the database, where it is set. A relative path of SQLite, as in `sqlite:///./ralph.db`, starts from the
    /// directory of the `.env` file that sets it.
    #[must_use]
    pub fn database_url(&self) -> Option<Secret> {
        let url = self.variables.get(VARIABLE)?;
        let dir = match self.variables.place(VARIABLE) {
            Some(SettingPlace::Variable { file: Some(file), .. }) => file.path.parent(),
            _ => None,
        };
        Some(dir.map_or_else(|| url.clone(), |dir| Secret::new(resolve(url.expose(), dir))))
    }
}

/// The same address with an absolute path. Three slashes begin a relative path, four an absolute one.
fn resolve(url: &str, dir: &Path) -> String {
    let relative = url
        .strip_prefix("sqlite:///")
        .filter(|path| !path.starts_with('/') && !path.is_empty() && !path.starts_with(":memory:"));
    match relative {
        Some(path) => {
            let path = dir.join(path.strip_prefix("./").unwrap_or(path));
            format!("sqlite:///{}", path.display())
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("sqlite:///./ralph.db", "sqlite:////srv/project/ralph.db")]
    #[case("sqlite:///data/ralph.db", "sqlite:////srv/project/data/ralph.db")]
    #[case("sqlite:////var/ralph.db", "sqlite:////var/ralph.db")]
    #[case("sqlite:///:memory:", "sqlite:///:memory:")]
    #[case("postgres://me@host/ralph", "postgres://me@host/ralph")]
    fn a_relative_path_starts_from_the_directory(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(resolve(url, Path::new("/srv/project")), expected);
    }
}
