//! Skipping, counted. `tests/run` names a file in `RALPH_TEST_SKIPS` and adds up what it finds there.

use std::io::Write;

/// Ends the test as skipped when `$have` is `Err(reason)`; otherwise its value.
#[macro_export]
macro_rules! need {
    ($have:expr) => {
        match $have {
            Ok(value) => value,
            Err(reason) => return $crate::skip::record(&reason.to_string()),
        }
    };
}

/// A program on the `PATH`, or why the test cannot run.
pub fn program(name: &str) -> Result<std::path::PathBuf, String> {
    which::which(name).map_err(|_| format!("`{name}` is not installed"))
}

/// Writes the skip of the test that this thread is named after down; fails it when skips are not accepted.
pub fn record(reason: &str) {
    record_as(std::thread::current().name().unwrap_or("?"), reason);
}

/// Writes the skip of a test down; fails it when skips are not accepted.
#[allow(
    clippy::disallowed_methods,
    reason = "the contract with tests/run is by environment"
)]
pub fn record_as(name: &str, reason: &str) {
    assert!(
        std::env::var_os("RALPH_TEST_REQUIRE_ALL").is_none(),
        "{name} would be skipped: {reason}"
    );
    println!("SKIP {name}: {reason}");
    if let Some(file) = std::env::var_os("RALPH_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .unwrap();
        writeln!(file, "{name}\t{reason}").unwrap();
    }
}
