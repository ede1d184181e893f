//! The contracts of the conformance suite, as lists.

#[path = "../conformance/environment.rs"]
pub mod environment;
#[path = "../conformance/exec.rs"]
pub mod exec;
#[path = "../conformance/files.rs"]
pub mod files;
#[path = "../conformance/life.rs"]
pub mod life;
#[path = "../conformance/output.rs"]
pub mod output;
