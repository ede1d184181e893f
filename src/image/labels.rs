//! The labels of ralph's images, by which they are found and verified.

/// The whole content hash. The tag shows its first digits.
pub const HASH: &str = "ralph.image.hash";
/// The agent's name.
pub const AGENT: &str = "ralph.image.agent";
/// The project's name. Only a project's image has it.
pub const PROJECT: &str = "ralph.image.project";
/// What it was built from: `template`, `dockerfile` or `nix`.
pub const MODE: &str = "ralph.image.mode";
/// The identity of the image that the base was built from. A Nix image has none.
pub const BASE: &str = "ralph.image.base";
/// The version of ralph that built the image.
pub const VERSION: &str = "ralph.version";
