//! The systems that images are built for, as Nix names them.

use std::fmt;

/// A processor and an operating system: `x86_64-linux`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NixSystem {
    /// Linux on 64-bit x86.
    X86_64Linux,
    /// Linux on 64-bit ARM.
    Aarch64Linux,
}

impl NixSystem {
    /// The name that Nix uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64Linux => "x86_64-linux",
            Self::Aarch64Linux => "aarch64-linux",
        }
    }
}

impl fmt::Display for NixSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
