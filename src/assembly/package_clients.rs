//! The configuration of package clients (npm, cargo, …), from the files of the project and of its image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::config::Config;
use crate::engine::ImageFiles;
use crate::network::{ConfigDirectory, ConfigTree, PackageClient, PackageConfig, Preset};

use super::provider::{self, ImageSource};
use super::{AssemblyContext, AssemblyError, image};

/// The configuration of the package clients in one sandbox.
pub(crate) struct PackageClientFiles {
    project: Box<dyn ConfigTree>,
    image: ImageFiles,
    /// The variables of the image.
    env: BTreeMap<String, String>,
}

impl PackageClientFiles {
    /// Reads the files of the project, and those of the image where a preset of the policy asks for them.
    pub(crate) async fn read(
        context: &AssemblyContext,
        config: &Config,
        project: Option<&Path>,
        image: Option<&str>,
    ) -> Result<Self, AssemblyError> {
        let mut files = Self {
            project: match project {
                Some(dir) => Box::new(ConfigDirectory::new(dir)),
                None => Box::new(BTreeMap::new()),
            },
            image: ImageFiles::new(),
            env: BTreeMap::new(),
        };
        if let Some(image) = image.filter(|_| depends_on_image(config)) {
            files.read_image(context, config, image).await?;
        }
        Ok(files)
    }

    /// The files, for the presets of a policy.
    pub(crate) fn clients(&self) -> PackageConfig<'_> {
        PackageConfig {
            project: self.project.as_ref(),
            image: &self.image,
            env: &self.env,
        }
    }

    async fn read_image(
        &mut self,
        context: &AssemblyContext,
        config: &Config,
        name: &str,
    ) -> Result<(), AssemblyError> {
        if provider::image_source(context, config) != ImageSource::EngineImage {
            return Ok(());
        }
        let engine = image::connect(context).await?;
        // A missing image is reported when a sandbox is created from it.
        if let Some(found) = engine.image(name).await? {
            self.env = found.variables();
            let paths: BTreeSet<String> = presets(config)
                .flat_map(|packages| packages.image_paths(&self.env))
                .collect();
            let cache = provider::docker_options(&context.surroundings)?.cache;
            let now = context.surroundings.clock().now();
            self.image = engine.image_files(&found.id, &paths, &cache, now).await?;
        }
        Ok(())
    }
}

/// Whether the policy depends on what is in the image.
pub(crate) fn depends_on_image(config: &Config) -> bool {
    presets(config).next().is_some()
}

fn presets(config: &Config) -> impl Iterator<Item = PackageClient> {
    let presets = config.settings.sandbox.network.presets.iter();
    presets.filter_map(|preset| match preset {
        Preset::Packages(packages) => Some(*packages),
        Preset::Anthropic | Preset::Openai | Preset::Github => None,
    })
}
