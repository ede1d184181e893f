//! Names: a public type means one thing in the whole crate, a parameter is one value, the crate's root stays small.

use std::collections::BTreeMap;

use crate::none;
use crate::repository::{self, File};
use crate::rust::{self, Path, Token};

/// The most names that `lib.rs` re-exports.
const MOST_ROOT_NAMES: usize = 40;

#[test]
fn no_two_public_types_share_a_name() {
    none(
        "public types that share a name",
        shared_names(&repository::sources()),
    );
}

#[test]
fn no_parameter_is_a_tuple_of_two_values() {
    let sources = repository::sources();
    none(
        "tuple parameters; give each value a parameter or make a struct",
        sources.iter().flat_map(tuple_parameters),
    );
}

#[test]
fn the_root_of_the_crate_is_small() {
    let names = root_names(&repository::text("src/lib.rs"));
    assert!(
        names.len() <= MOST_ROOT_NAMES,
        "lib.rs re-exports {} names, {MOST_ROOT_NAMES} at most: {}",
        names.len(),
        names.join(", ")
    );
}

/// The names that more than one `pub` type has, in any visibility, with their files.
fn shared_names(files: &[File]) -> Vec<String> {
    let mut files_by_name: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in files {
        for name in public_types(rust::without_tests(&file.text)) {
            files_by_name.entry(name).or_default().push(&file.path);
        }
    }
    let shared = files_by_name.into_iter().filter(|(_, paths)| paths.len() > 1);
    shared
        .map(|(name, paths)| format!("{name}: {}", paths.join(", ")))
        .collect()
}

fn public_types(source: &str) -> Vec<String> {
    let code = rust::without_comments_and_literals(source);
    let lines = code.lines().map(str::trim_start);
    lines.filter_map(public_type).map(str::to_owned).collect()
}

/// The name of the type that this line makes public.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let (kind, rest) = rest.split_once(' ')?;
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "union" | "type");
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_type && !name.is_empty()).then_some(name)
}

/// The functions with a parameter `(a, b): (A, B)`.
fn tuple_parameters(file: &File) -> Vec<String> {
    let code = rust::without_comments_and_literals(rust::without_tests(&file.text));
    let tokens = rust::tokens(&code);
    let functions = tokens
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0].text == "fn" && pair[1].is_word());
    let found = functions.filter(|(at, _)| has_tuple_pattern(&tokens[at + 2..]));
    found
        .map(|(_, pair)| format!("{}:{}: fn {}", file.path, pair[1].line, pair[1].text))
        .collect()
}

/// Whether a parameter in the list that these tokens begin with is a pattern in brackets.
fn has_tuple_pattern(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0_usize;
    let mut angles = 0_usize;
    let mut before = "";
    for token in tokens {
        match token.text {
            "<" => angles += 1,
            ">" if before != "-" => angles = angles.saturating_sub(1),
            "(" | ")" if angles > 0 => {}
            "(" if depth == 1 && matches!(before, "(" | ",") => return true,
            "(" | "[" | "{" if depth == 0 && token.text != "(" => return false,
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth -= 1;
                if depth == 0 {
                    return false;
                }
            }
            _ => {}
        }
        before = token.text;
    }
    false
}

/// The names that `pub use` lines bring to the root.
fn root_names(text: &str) -> Vec<String> {
    let code = rust::without_comments_and_literals(text);
    let statements = code.split(';').filter_map(|statement| {
        let at = statement.find("pub use ")?;
        Some(format!("{};", &statement[at + "pub ".len()..]))
    });
    let last = |path: Path| path.segments.last().cloned().unwrap_or_default();
    statements
        .flat_map(|statement| rust::paths(&statement))
        .map(last)
        .collect()
}

mod tests {
    use super::{File, root_names, shared_names, tuple_parameters};

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn a_name_used_twice_is_found_in_every_visibility() {
        let files = [
            file(
                "src/a.rs",
                "pub struct Entry;\npub(crate) enum State {}\nstruct Own;",
            ),
            file(
                "src/b.rs",
                "    pub(in crate::b) struct State;\nstruct Own;\n// pub struct Entry",
            ),
            file(
                "src/c.rs",
                "pub trait Entry<T> {}\n#[cfg(test)]\nmod tests {\npub struct Own;\n}",
            ),
        ];
        assert_eq!(
            shared_names(&files),
            ["Entry: src/a.rs, src/c.rs", "State: src/a.rs, src/b.rs"]
        );
    }

    #[track_caller]
    fn check(signature: &str, is_wrong: bool) {
        let found = tuple_parameters(&file("src/a.rs", signature));
        assert_eq!(!found.is_empty(), is_wrong, "{signature}: {found:?}");
    }

    #[test]
    fn a_tuple_that_stands_for_two_parameters_is_found() {
        check("fn f((a, b): (u8, u8)) {}", true);
        check(
            "async fn f(\n    &self,\n    x: u8,\n    (a, b): (&A, B),\n) {}",
            true,
        );
        check("fn f<T: Fn((u8, u8))>(a: T, (b, c): (u8, u8)) {}", true);
    }

    #[test]
    fn a_tuple_elsewhere_is_fine() {
        check("fn f(a: (u8, u8), g: impl Fn((u8, u8))) {}", false);
        check("fn f() { let g = |(a, b): (u8, u8)| a; }", false);
        check("fn f(a: u8) -> (u8, u8) { g((1, 2)) }", false);
        check("fn f(a: fn((u8, u8)) -> u8) {}", false);
        check("fn f(a: u8, b: impl Fn(u8) -> Result<u8, ()>) {}", false);
    }

    #[test]
    fn every_name_of_a_group_counts() {
        let text = "/// x\npub mod a;\npub use a::{B, c::D};\nuse e::F;\npub use g::H as I;";
        assert_eq!(root_names(text).len(), 3);
    }
}
