//! Words for a shell.

use std::path::Path;

/// Keeps a line break in a variable, so that a script can name one and stay a line.
const NAME_THE_BREAK: &str = "n=$(printf '\\nx'); n=${n%x}";

/// One line by which a shell enters a directory and takes these variables.
pub(super) fn surroundings<'a>(
    dir: &Path,
    env: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> String {
    let enter = format!("{NAME_THE_BREAK}; cd -- {}", quoted(&dir.to_string_lossy()));
    env.into_iter().fold(enter, |line, (name, value)| {
        format!("{line} && export {name}={}", quoted(value))
    })
}

/// A text as one word on one line, in which a line break is named.
pub(super) fn quoted(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| format!("'{}'", line.replace('\'', r"'\''")))
        .collect();
    lines.join("\"$n\"")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::exec::{Command, Discard, Host};

    /// What a shell makes of a value.
    fn taken(value: &str) -> String {
        let env = BTreeMap::from([("VALUE".to_owned(), value.to_owned())]);
        let line = surroundings(Path::new("/"), &env);
        assert!(!line.contains('\n'), "{line}");
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]));
        let command =
            Command::shell("IFS= read -r line && eval \"$line\" && printenv VALUE").stdin(line + "\n");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let exit = runtime.block_on(host.run(&command, &mut Discard)).unwrap();
        exit.stdout.text()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_value_arrives_as_it_was_written(value in "[a-z'\"$`\\\\ \n\u{e9}]{0,12}") {
            prop_assert_eq!(taken(&value), value + "\n");
        }
    }
}
