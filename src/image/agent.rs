//! Whom an image is made for, and for which machine.

use serde::Serialize;

/// The agent that an image carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageAgent {
    /// The `claude` program.
    Claude,
    /// The `codex` program.
    Codex,
    /// The `cursor-agent` program.
    Cursor,
    /// The tools alone: the built-in agent needs no program of its own.
    Actions,
}

impl ImageAgent {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Cursor, Self::Actions];

    /// The name used in tags and labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::Actions => "actions",
        }
    }
}

/// The machine that an image runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Platform {
    /// Linux on x86, 64 bits.
    #[serde(rename = "linux/amd64")]
    LinuxAmd64,
    /// Linux on ARM, 64 bits.
    #[serde(rename = "linux/arm64")]
    LinuxArm64,
}

impl Platform {
    /// The name as engines write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "linux/amd64",
            Self::LinuxArm64 => "linux/arm64",
        }
    }

    /// The name as Nix writes it.
    #[must_use]
    pub fn nix_system(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "x86_64-linux",
            Self::LinuxArm64 => "aarch64-linux",
        }
    }
}
