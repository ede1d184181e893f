//! Drives one of ralph's fuzz targets with libFuzzer: the one that `RALPH_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ralph::fuzzing::{FUZZ_TARGETS, FuzzTarget};

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("RALPH_FUZZ_TARGET").unwrap_or_default();
    let found = FUZZ_TARGETS.iter().find(|target| target.name == name);
    let names: Vec<&str> = FUZZ_TARGETS.iter().map(|target| target.name).collect();
    *found.unwrap_or_else(|| panic!("RALPH_FUZZ_TARGET is `{name}`; there are: {}", names.join(" ")))
});

fuzz_target!(|bytes: &[u8]| (TARGET.body)(bytes));
