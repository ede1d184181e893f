//! Which image is pulled or pushed.

use crate::config::Config;
use crate::engine::EngineImageReference;
use crate::image::ImageError;

use super::super::error::CliError;

/// What is pulled or pushed.
pub(super) enum Target {
    /// The image that `sandbox.image` names.
    Named(EngineImageReference),
    /// The planned image, in this registry.
    Planned { registry: String },
}

impl Target {
    pub(super) fn of(config: &Config) -> Result<Self, CliError> {
        let sandbox = &config.settings.sandbox;
        match (&sandbox.image, &sandbox.registry) {
            (Some(name), _) => Ok(Self::Named(EngineImageReference::parse(name).map_err(ImageError::from)?)),
            (None, Some(registry)) => Ok(Self::Planned {
                registry: registry.clone(),
            }),
            (None, None) => Err(
                CliError::usage("neither `sandbox.image` nor `sandbox.registry` is set").with_hint(
                    "set `sandbox.registry = \"ghcr.io/team\"` for planned images, or `sandbox.image` to one image",
                ),
            ),
        }
    }
}
