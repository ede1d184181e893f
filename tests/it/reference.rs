//! The generated reference is what the code says.

use std::path::Path;

#[test]
fn the_generated_reference_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in ralph::config::reference::pages() {
        let path = root.join(page.path);
        if std::env::var_os("RALPH_UPDATE_REFERENCE").is_some_and(|value| value == "1") {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &page.text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == page.text,
            "{} is stale; `RALPH_UPDATE_REFERENCE=1 cargo test --test it reference` rewrites it",
            page.path
        );
    }
}
