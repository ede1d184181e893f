//! The table of the security page: what `ralph selftest --escapes` says of each provider, by class of attacks.

use std::path::Path;

use serde_json::Value;

/// The first cell of the table's header.
const HEADER: &str = "| class of attacks |";

/// Compares the column of a provider with the cases of its report; with `RALPH_UPDATE_REFERENCE=1` writes it. The tests
/// of several providers then have to run one after the other.
#[track_caller]
pub fn check_column(provider: &str, cases: &[Value]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let header = text.lines().find(|line| line.starts_with(HEADER)).unwrap();
    let title = format!("`{provider}`");
    let column = cells(header).iter().position(|cell| *cell == title).unwrap();
    let mut classes: Vec<&str> = cases.iter().map(|case| case["class"].as_str().unwrap()).collect();
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut cells: Vec<String> = cells(line).iter().map(ToString::to_string).collect();
        match cells.first().map(String::as_str) {
            Some(class) if line.starts_with('|') && classes.contains(&class) => {
                cells[column] = cell(class, cases);
                classes.retain(|other| *other != cells[0]);
                lines.push(format!("| {} |", cells.join(" | ")));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    assert!(
        classes.is_empty(),
        "{} has no rows for {classes:?}",
        page.display()
    );
    let updated = lines.join("\n") + "\n";
    if std::env::var_os("RALPH_UPDATE_REFERENCE").is_some() {
        std::fs::write(&page, updated).unwrap();
    } else {
        assert!(
            text == updated,
            "the table of docs/security.md is not what {provider} reports; RALPH_UPDATE_REFERENCE=1 updates it:\n{updated}"
        );
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The words are explained below the table.
fn cell(class: &str, cases: &[Value]) -> String {
    let has = |verdict: &str| {
        let mut cases = cases.iter().filter(|case| case["class"] == class);
        cases.any(|case| case["verdict"] == verdict)
    };
    let word = match (has("open"), has("enforced"), has("not-enforceable")) {
        (true, _, _) => "open",
        (_, true, true) => "partly",
        (_, true, false) => "yes",
        (_, false, true) => "no",
        (_, false, false) => "not tried",
    };
    word.to_owned()
}
