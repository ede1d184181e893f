//! Nix: flakes, the packages they have, and the hash that says whether one must be built again.
//!
//! [`Flake::content_hash`] reads tracked files and starts no `nix`; [`Flake::has_remembered`] asks nix once per content;
//! [`Flake::build`] has it build. The small part of Nix's formats that is needed ([`nar`], [`nixbase32`],
//! [`StorePath`]) is written here, under the names it has in `nix-compat`.

mod cache;
mod error;
mod flake;
mod flake_ref;
mod inputs;
pub mod nar;
pub mod nixbase32;
mod output;
mod store_path;
mod system;

pub use cache::Cache;
pub use error::NixError;
pub use flake::{Built, Flake, Presence};
pub use flake_ref::{FlakeRef, FlakeRefError, Installable, LocalFlake};
pub use inputs::{ContentHash, InputPath, InputPathError, Inputs};
pub use output::{Attribute, AttributeError, FlakeOutput};
pub use store_path::{STORE_DIR, StorePath, StorePathError};
pub use system::{Cpu, Os, System, UnknownSystem};
