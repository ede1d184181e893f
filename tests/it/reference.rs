//! The generated reference is what the code says.

use std::path::Path;

#[test]
fn the_configuration_reference_is_up_to_date() {
    for page in ralph::config::reference::pages() {
        check(page.path, &page.text);
    }
}

#[test]
fn the_command_line_reference_is_up_to_date() {
    check("docs/reference/cli.md", &ralph::cli::cli_reference());
}

/// The committed page is this text; with `RALPH_UPDATE_REFERENCE=1` it becomes it.
#[track_caller]
fn check(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    if std::env::var_os("RALPH_UPDATE_REFERENCE").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{page} is stale; `RALPH_UPDATE_REFERENCE=1 cargo test --test it reference` rewrites it"
    );
}
