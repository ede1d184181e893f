//! Nix flakes: their packages, and the hash that says whether one must be built again.
//!
//! [`Flake::content_hash`] reads tracked files and does not start `nix`. [`Flake::has_package_cached`] asks `nix` once per
//! content, and [`Flake::build`] lets it build.

mod cache;
mod error;
mod flake;
mod flake_ref;
mod inputs;
mod output;
mod rebuild;

pub use cache::FlakeCache;
pub use error::NixError;
pub use flake::Flake;
pub use flake_ref::{FlakeRef, FlakeRefError, Installable};
pub use inputs::{FlakeInputs, InputPath, InputPathError};
pub use output::{Attribute, AttributeError, FlakeOutput};
