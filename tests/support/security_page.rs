//! The table of the security page: what `ralph selftest --escapes` says of each provider, by class of attacks.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The first cell of the table's header.
const HEADER: &str = "| class of attacks |";

/// The first cell of the row that says when the column was written, and what was attacked. Only an update changes it.
const LAST_RUN: &str = "last run";

/// Compares the column of a provider with the cases of its report; with `RALPH_UPDATE_REFERENCE=1` writes it. The tests
/// of several providers then have to run one after the other. `attacked` is the program behind the provider and its version, if
/// it was attacked.
#[track_caller]
pub fn check_column(provider: &str, attacked: Option<&str>, cases: &[Value]) {
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
            Some(LAST_RUN) => {
                if is_update() {
                    let today = jiff::Timestamp::now().strftime("%Y-%m-%d");
                    cells[column] =
                        attacked.map_or("not attacked".to_owned(), |program| format!("{today}, {program}"));
                }
                lines.push(format!("| {} |", cells.join(" | ")));
            }
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
    if is_update() {
        std::fs::write(&page, updated).unwrap();
    } else {
        assert!(
            text == updated,
            "the table of docs/security.md is not what {provider} reports; RALPH_UPDATE_REFERENCE=1 updates it:\n{updated}"
        );
    }
}

/// The name and the version of the engine at this address, as its command line knows them.
pub fn engine_version(host: &str) -> String {
    let format = "{{(index .Server.Components 0).Name}} {{.Server.Version}}";
    let output = Command::new("docker")
        .args(["--host", host, "version", "--format", format])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    match said.trim().strip_prefix("Engine ") {
        Some(version) => format!("Docker {version}"),
        None => said.trim().replace(" Engine", ""),
    }
}

fn is_update() -> bool {
    std::env::var_os("RALPH_UPDATE_REFERENCE").is_some()
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
