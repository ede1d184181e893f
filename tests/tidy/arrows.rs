//! Imports point one way: the way the table in ARCHITECTURE.md says.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{self, File};
use crate::{layers, none, rust};

/// What each module may import, by module.
type Table = BTreeMap<String, Allowed>;

/// The heads of the two tables.
const DESCRIPTIONS: &str = "| part | what it knows |";
const IMPORTS: &str = "| module | may import |";

enum Allowed {
    Everything,
    These(BTreeSet<String>),
}

#[test]
fn no_module_imports_what_the_table_does_not_list() {
    let table = table(&repository::text("ARCHITECTURE.md"));
    let sources = repository::sources();
    let modules = modules(&sources);
    let findings = sources.iter().flat_map(|file| forbidden(file, &modules, &table));
    none(
        "imports that the table in ARCHITECTURE.md does not list",
        findings,
    );
}

#[test]
fn every_module_has_a_row_in_the_table() {
    let table = table(&repository::text("ARCHITECTURE.md"));
    let missing = modules(&repository::sources())
        .into_iter()
        .filter(|module| !table.contains_key(module));
    none("modules without a row in ARCHITECTURE.md", missing);
}

#[test]
fn every_row_is_a_module_or_marked_later() {
    let document = repository::text("ARCHITECTURE.md");
    none(
        "rows of ARCHITECTURE.md with neither a module nor the mark (later), or with both",
        misplaced_rows(&document, &modules(&repository::sources())),
    );
}

#[test]
fn both_tables_name_the_same_modules() {
    let document = repository::text("ARCHITECTURE.md");
    let imported: BTreeSet<String> = table(&document).into_keys().collect();
    let described = described_modules(&document);
    none(
        "modules that only one of the two tables in ARCHITECTURE.md names",
        imported.symmetric_difference(&described).cloned(),
    );
}

#[test]
fn the_table_has_no_circles() {
    none(
        "modules that import themselves in the end",
        circles(&table(&repository::text("ARCHITECTURE.md"))),
    );
}

#[test]
fn the_picture_of_the_modules_is_up_to_date() {
    let table = table(&repository::text("ARCHITECTURE.md"));
    let imports = table
        .keys()
        .map(|module| (module.clone(), imports(&table, module)));
    repository::check("docs/images/modules.svg", &layers::picture(&imports.collect()));
}

/// The findings in one file.
fn forbidden(file: &File, modules: &BTreeSet<String>, table: &Table) -> Vec<String> {
    let place = place(&file.path);
    let Some(module) = place.first() else {
        return Vec::new(); // lib.rs and main.rs stand above all modules.
    };
    let mut findings = Vec::new();
    for path in rust::paths(rust::without_tests(&file.text)) {
        let Some(target) = target(&path.segments, &place) else {
            continue;
        };
        let at = format!("{}:{}", file.path, path.line);
        let is_module = modules.contains(target);
        if !is_module && path.segments[0] == "crate" {
            findings.push(format!(
                "{at}: `{target}` comes from the crate's root; name its module"
            ));
        }
        if is_module && target != module && !allows(table, module, target) {
            findings.push(format!("{at}: `{module}` imports `{target}`"));
        }
    }
    findings.dedup();
    findings
}

fn allows(table: &Table, module: &str, target: &str) -> bool {
    match table.get(module) {
        Some(Allowed::Everything) => true,
        Some(Allowed::These(targets)) => targets.contains(target),
        None => false,
    }
}

/// The top-level name that a path leads to, when it leads out of its own file.
fn target<'a>(segments: &'a [String], place: &'a [String]) -> Option<&'a str> {
    if segments[0] == "crate" {
        return segments.get(1).map(String::as_str);
    }
    let supers = segments.iter().take_while(|segment| *segment == "super").count();
    if supers == 0 || supers > place.len() {
        return None;
    }
    let kept = &place[..place.len() - supers];
    kept.iter().chain(&segments[supers..]).next().map(String::as_str)
}

/// Where a file stands in the crate: `src/agent/actions/mod.rs` is `agent`, `actions`. Empty at the root.
fn place(path: &str) -> Vec<String> {
    let path = path
        .trim_start_matches("src/")
        .trim_end_matches(".rs")
        .trim_end_matches("/mod");
    if matches!(path, "lib" | "main") {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

fn modules(sources: &[File]) -> BTreeSet<String> {
    sources
        .iter()
        .filter_map(|file| place(&file.path).into_iter().next())
        .collect()
}

/// The modules whose rows say something else about them than the code does: `image` (later) is not there yet.
fn misplaced_rows(document: &str, modules: &BTreeSet<String>) -> Vec<String> {
    let rows = rows(document, IMPORTS).filter_map(|line| {
        let later = line.split('|').nth(1)?.contains("(later)");
        Some((row(line)?.0, later))
    });
    rows.filter(|(module, later)| modules.contains(module) == *later)
        .map(|(module, _)| module)
        .collect()
}

/// The lines below this head of a table.
fn rows<'a>(document: &'a str, head: &str) -> impl Iterator<Item = &'a str> {
    let lines = document
        .lines()
        .skip_while(move |line| !line.starts_with(head))
        .skip(2);
    lines.take_while(|line| line.starts_with('|'))
}

/// The modules in the first cells of the table that says what each part knows. The parts that end in `/` are folders.
fn described_modules(document: &str) -> BTreeSet<String> {
    rows(document, DESCRIPTIONS)
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(quoted)
        .filter(|name| !name.ends_with('/'))
        .collect()
}

/// What the rows say. Names stand in backticks; a cell without any means nothing.
fn table(document: &str) -> Table {
    let rows: Table = rows(document, IMPORTS).map_while(row).collect();
    assert!(
        !rows.is_empty(),
        "ARCHITECTURE.md has a table `| module | may import |`"
    );
    rows
}

fn row(line: &str) -> Option<(String, Allowed)> {
    let (module, targets) = line.strip_prefix('|')?.split_once('|')?;
    let allowed = match targets.trim_end_matches('|').trim() {
        "everything" => Allowed::Everything,
        names => Allowed::These(quoted(names)),
    };
    Some((quoted(module).pop_first()?, allowed))
}

/// The names in backticks.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What a module may import.
fn imports(table: &Table, module: &str) -> BTreeSet<String> {
    match table.get(module) {
        Some(Allowed::These(targets)) => targets.clone(),
        Some(Allowed::Everything) => table.keys().filter(|name| *name != module).cloned().collect(),
        None => BTreeSet::new(),
    }
}

/// The modules that reach themselves by following the table.
fn circles(table: &Table) -> Vec<String> {
    let reaches_itself = |module: &&String| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<String> = imports(table, module).into_iter().collect();
        while let Some(name) = open.pop() {
            if seen.insert(name.clone()) {
                open.extend(imports(table, &name));
            }
        }
        seen.contains(*module)
    };
    table.keys().filter(reaches_itself).cloned().collect()
}

mod tests {
    use super::{circles, described_modules, forbidden, misplaced_rows, table};
    use crate::repository::File;

    const TABLE: &str = "\
# A document
| module | may import |
|---|---|
| `a` | nothing |
| `b` | `a` |
| `top` | everything |

| other | table |
";

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let modules = ["a", "b", "top"].map(str::to_owned).into();
        let file = File {
            path: path.into(),
            text: text.into(),
        };
        assert_eq!(forbidden(&file, &modules, &table(TABLE)), expected);
    }

    #[test]
    fn an_arrow_that_is_not_listed_is_found() {
        check("src/a.rs", "use crate::b::X;", &["src/a.rs:1: `a` imports `b`"]);
        check(
            "src/b/mod.rs",
            "\nuse crate::{a, top};",
            &["src/b/mod.rs:2: `b` imports `top`"],
        );
        check(
            "src/a/x.rs",
            "fn f() -> crate::b::X",
            &["src/a/x.rs:1: `a` imports `b`"],
        );
        check(
            "src/a/x.rs",
            "use super::super::b;",
            &["src/a/x.rs:1: `a` imports `b`"],
        );
        check("src/a.rs", "use super::b::X;", &["src/a.rs:1: `a` imports `b`"]);
        check(
            "src/new.rs",
            "use crate::a;",
            &["src/new.rs:1: `new` imports `a`"],
        );
    }

    #[test]
    fn a_listed_arrow_is_fine() {
        check("src/b.rs", "use crate::a::X; use crate::b::y;", &[]);
        check("src/top/x.rs", "use crate::{a, b};", &[]);
        check("src/a/x.rs", "use super::y; use self::z;", &[]);
        check("src/lib.rs", "pub use crate::a::X;", &[]);
        check("src/a.rs", "#[cfg(test)]\nmod tests {\n    use crate::b;\n}", &[]);
    }

    #[test]
    fn the_crates_root_is_no_way_around_the_table() {
        let expected = "src/b.rs:1: `Run` comes from the crate's root; name its module";
        check("src/b.rs", "use crate::Run;", &[expected]);
    }

    #[test]
    fn a_row_without_a_module_needs_its_mark() {
        let marked = TABLE.replace("| `b` |", "| `b` (later) |");
        let rows = |document: &str, modules: &[&str]| {
            misplaced_rows(document, &modules.iter().map(|name| (*name).to_owned()).collect())
        };
        assert_eq!(rows(TABLE, &["a", "b", "top"]), [""; 0]);
        assert_eq!(rows(TABLE, &["a", "top"]), ["b"]);
        assert_eq!(rows(&marked, &["a", "top"]), [""; 0]);
        assert_eq!(rows(&marked, &["a", "b", "top"]), ["b"]);
    }

    #[test]
    fn a_described_module_is_no_folder() {
        let document =
            "| part | what it knows |\n|---|---|\n| `a`, `b` | `c` |\n| `d/` | e |\n\n| `f` | g |\n";
        assert_eq!(
            described_modules(document).into_iter().collect::<Vec<_>>(),
            ["a", "b"]
        );
    }

    #[test]
    fn a_circle_is_found() {
        assert_eq!(circles(&table(TABLE)), [""; 0]);
        assert_eq!(circles(&table(&TABLE.replace("nothing", "`b`"))), ["a", "b"]);
    }
}
