//! `ralph selftest`: a sandbox as a run would get it, tried out and removed.

use serde_json::Value;

use crate::support::ralph::Place;

#[test]
fn a_local_sandbox_passes_and_nothing_is_left() {
    let place = Place::new();
    let ended = place.run(&["selftest", "--type", "local", "--json"]);
    ended.expect(0, &[]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&report["provider"], &report["image"]),
        (&"local".into(), &Value::Null)
    );
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 8);
    assert!(checks.iter().all(|check| check["seen"].is_null()), "{report:#}");
    assert_eq!(place.runs(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_does_not_hold_is_told_with_what_was_seen() {
    let place = Place::new();
    // A shell, and nothing else: no git.
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for program in ["sh", "cat", "sleep"] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), bin.join(program)).unwrap();
    }
    let mut command = place.ralph(&["selftest", "--type", "local"]);
    let ended = crate::support::ralph::finish(command.env("PATH", &bin));
    ended.expect(1, &["ralph: 1 of 8 checks failed with the `local` provider"]);
    assert!(
        ended.stdout.contains("\nFAIL  git is there: "),
        "{}",
        ended.stdout
    );
}
