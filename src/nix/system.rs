//! Nix's names for kinds of machine.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A processor and an operating system: `x86_64-linux`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct System {
    /// The processor.
    pub cpu: Cpu,
    /// The operating system.
    pub os: Os,
}

/// A processor that images are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cpu {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// An operating system that Nix runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Os {
    /// Linux.
    Linux,
    /// macOS.
    Darwin,
}

/// A system that ralph makes no images for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a system that images are made for; these are: x86_64-linux, aarch64-linux")]
pub struct UnknownSystem(String);

impl System {
    /// What this program was built for, if it is one of ours.
    #[must_use]
    pub const fn this_machine() -> Option<Self> {
        let cpu = if cfg!(target_arch = "x86_64") {
            Cpu::X86_64
        } else if cfg!(target_arch = "aarch64") {
            Cpu::Aarch64
        } else {
            return None;
        };
        let os = if cfg!(target_os = "linux") {
            Os::Linux
        } else if cfg!(target_os = "macos") {
            Os::Darwin
        } else {
            return None;
        };
        Some(Self { cpu, os })
    }

    /// The system of an image that runs on this one: Linux, on the same processor.
    #[must_use]
    pub const fn of_image(self) -> Self {
        Self {
            os: Os::Linux,
            ..self
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = match self.cpu {
            Cpu::X86_64 => "x86_64",
            Cpu::Aarch64 => "aarch64",
        };
        let os = match self.os {
            Os::Linux => "linux",
            Os::Darwin => "darwin",
        };
        write!(f, "{cpu}-{os}")
    }
}

impl FromStr for System {
    type Err = UnknownSystem;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (cpu, os) = match text {
            "x86_64-linux" => (Cpu::X86_64, Os::Linux),
            "aarch64-linux" => (Cpu::Aarch64, Os::Linux),
            "x86_64-darwin" => (Cpu::X86_64, Os::Darwin),
            "aarch64-darwin" => (Cpu::Aarch64, Os::Darwin),
            other => return Err(UnknownSystem(other.to_owned())),
        };
        Ok(Self { cpu, os })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("x86_64-linux", "x86_64-linux")]
    #[case("aarch64-linux", "aarch64-linux")]
    #[case("x86_64-darwin", "x86_64-linux")]
    #[case("aarch64-darwin", "aarch64-linux")]
    fn an_image_is_for_linux_on_the_same_processor(#[case] host: &str, #[case] image: &str) {
        let system: System = host.parse().unwrap();
        assert_eq!(system.to_string(), host);
        assert_eq!(system.of_image().to_string(), image);
    }

    #[rstest]
    #[case("")]
    #[case("linux")]
    #[case("armv7l-linux")]
    #[case("X86_64-linux")]
    fn other_systems_are_refused(#[case] text: &str) {
        assert_eq!(text.parse::<System>(), Err(UnknownSystem(text.to_owned())));
    }
}
