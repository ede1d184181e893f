//! Quotes text for a shell.

use std::path::Path;

/// Sets the variable `n` to a line break, so that a script with line breaks fits on one line.
const SET_LINE_BREAK: &str = "n=$(printf '\\nx'); n=${n%x}";

/// A shell line that changes to a directory and exports variables.
pub(super) fn enter<'a>(dir: &Path, env: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let cd = format!("{SET_LINE_BREAK}; cd -- {}", quote(&dir.to_string_lossy()));
    env.into_iter().fold(cd, |line, (name, value)| {
        format!("{line} && export {name}={}", quote(value))
    })
}

/// Quotes a text as one word on one line.
pub(super) fn quote(text: &str) -> String {
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
    use crate::exec::tests::search_path;
    use crate::exec::{Command, Discard, Host};

    /// The value of a variable after a shell has read the line.
    fn exported(value: &str) -> String {
        let env = BTreeMap::from([("VALUE".to_owned(), value.to_owned())]);
        let line = enter(Path::new("/"), &env);
        assert!(!line.contains('\n'), "{line}");
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), search_path())]));
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
        fn a_value_is_exported_unchanged(value in "[a-z'\"$`\\\\ \n\u{e9}]{0,12}") {
            prop_assert_eq!(exported(&value), value + "\n");
        }
    }
}
