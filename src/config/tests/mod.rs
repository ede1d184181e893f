//! The configuration as its callers use it: real files in, values or messages out.

mod any_input;
mod defaults;
mod layers;
mod mistakes;
mod network;
mod secrets;

use std::fs;

use tempfile::TempDir;

use super::*;

/// A project directory with these files.
struct Project {
    dir: TempDir,
    inputs: ConfigInputs,
}

impl Project {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let inputs = ConfigInputs {
            user_file: Some(dir.path().join("user.toml")),
            project_dir: dir.path().to_owned(),
            ..ConfigInputs::default()
        };
        Self { dir, inputs }
    }

    fn env(mut self, variables: &[(&str, &str)]) -> Self {
        let pairs = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.inputs.env.extend(pairs);
        self
    }

    fn task(mut self, key: &str, value: &str) -> Self {
        let place = SettingPlace::File(FilePosition {
            path: "ralph_task.md".into(),
            line: 4,
            column: 17,
        });
        self.inputs.task.push(given(key, value, place));
        self
    }

    fn flag(mut self, flag: &str, key: &str, value: &str) -> Self {
        self.inputs
            .flags
            .push(given(key, value, SettingPlace::Flag(flag.to_owned())));
        self
    }

    fn load(&self) -> Config {
        load(&self.inputs).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The messages, without the directory.
    fn errors(&self) -> Vec<String> {
        let Err(error) = load(&self.inputs) else {
            panic!("it was accepted");
        };
        let prefix = format!("{}/", self.dir.path().display());
        error
            .to_string()
            .replace(&prefix, "")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn source(&self, key: &str) -> String {
        let config = self.load();
        let origin = config.origin(key).unwrap();
        let prefix = format!("{}/", self.dir.path().display());
        format!(
            "{} {}",
            origin.layer,
            origin.place.to_string().replace(&prefix, "")
        )
    }
}

fn given(key: &str, value: &str, place: SettingPlace) -> ConfigOverride {
    ConfigOverride {
        key: key.to_owned(),
        value: value.to_owned(),
        place,
    }
}
