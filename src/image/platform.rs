//! The platforms that images are built for.

use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::engine::Engine;

/// The operating system and processor that an image is for.
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
    /// Linux on a processor as engines name it: `amd64`, `arm64`.
    #[must_use]
    pub fn linux_on(arch: &str) -> Option<Self> {
        match arch {
            "amd64" => Some(Self::LinuxAmd64),
            "arm64" => Some(Self::LinuxArm64),
            _ => None,
        }
    }

    /// The platform of the host's processor, if images are built for it.
    #[must_use]
    pub fn of_host() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::LinuxAmd64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::LinuxArm64)
        } else {
            None
        }
    }

    /// The system as Nix names it.
    #[must_use]
    pub fn nix_system(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "x86_64-linux",
            Self::LinuxArm64 => "aarch64-linux",
        }
    }

    /// The name as engines write it; `None` if it is the engine's own platform, which not every engine accepts.
    #[must_use]
    pub fn unless_native(self, engine: &Engine) -> Option<&'static str> {
        (Self::linux_on(engine.arch()) != Some(self)).then(|| self.name())
    }

    /// The name as engines write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "linux/amd64",
            Self::LinuxArm64 => "linux/arm64",
        }
    }
}

/// Text that is not a [`Platform`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unsupported platform `{0}`: expected linux/amd64 or linux/arm64")]
pub struct UnknownPlatform(String);

impl FromStr for Platform {
    type Err = UnknownPlatform;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let arch = text.strip_prefix("linux/");
        arch.and_then(Self::linux_on)
            .ok_or_else(|| UnknownPlatform(text.to_owned()))
    }
}
