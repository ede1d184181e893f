//! Whatever stands in the files, loading ends with a configuration or with findings that name a file.

use std::fs;

use proptest::prelude::*;

use super::*;

const FILES: [&str; 4] = [
    "ralph.toml",
    ".env",
    ".agent-loop/config.json",
    "config/models.yaml",
];

fn survives(contents: &[Vec<u8>; 4]) -> Result<(), TestCaseError> {
    let project = Project::new(&FILES.map(|name| (name, "")));
    for (name, bytes) in FILES.iter().zip(contents) {
        fs::write(project.dir.path().join(name), bytes).unwrap();
    }
    match load(&project.inputs) {
        Ok(_) => {}
        Err(ConfigError::Read { path, .. }) => prop_assert!(false, "{}", path.display()),
        Err(ConfigError::Invalid { findings }) => {
            prop_assert!(!findings.is_empty());
            for finding in findings {
                let text = finding.to_string();
                prop_assert!(FILES.iter().any(|name| text.contains(name)), "{text}");
            }
        }
    }
    Ok(())
}

/// Text made of the pieces that the files are made of.
const PIECES: &str = "(\\[[a-z.]{0,12}\\]\n|[ ]{0,4}(budget|models|profiles|type|cpu|max_iterations|litellm_model|a)[ ]?[=:{.\n][ ]?|[-0-9.]{1,6}|true|null|\"[a-z]{0,6}\"|[\\[\\]{},'\"\n&*|>-]){0,30}";

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(contents in prop::array::uniform4(prop::collection::vec(any::<u8>(), 0..200))) {
        survives(&contents)?;
    }

    #[test]
    fn any_text_is_read_or_refused(contents in prop::array::uniform4("(?s).{0,200}")) {
        survives(&contents.map(String::into_bytes))?;
    }

    #[test]
    fn anything_that_looks_like_a_file_is_read_or_refused(contents in prop::array::uniform4(PIECES)) {
        survives(&contents.map(String::into_bytes))?;
    }

    #[test]
    fn any_variable_is_read_or_refused(name in "(RALPH_)?[A-Z_]{0,20}", value in "(?s).{0,40}") {
        let _ = load(&Project::new(&[]).env(&[(&name, &value)]).inputs);
    }
}
