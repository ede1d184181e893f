//! The configuration of package clients (npm, cargo, …), from the files of the project and of its image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::config::Config;
use crate::engine::ImageFiles;
use crate::network::{ConfigDirectory, ConfigTree, PackageClient, PackageConfig, Policy, Preset};

use super::provider::{self, ImageSource};
use super::{AssemblyContext, AssemblyError};

/// The network policy, with the registries that the files of the project and of the image name.
pub(crate) async fn network_policy(
    context: &AssemblyContext,
    config: &Config,
    project: Option<&Path>,
    image: Option<&str>,
) -> Result<Policy, AssemblyError> {
    let (files, env) = match image.filter(|_| depends_on_image(config)) {
        Some(image) => read_image(context, config, image).await?,
        None => (ImageFiles::new(), BTreeMap::new()),
    };
    let project: Box<dyn ConfigTree> = match project {
        Some(dir) => Box::new(ConfigDirectory(dir.to_owned())),
        None => Box::new(BTreeMap::new()),
    };
    Ok(config.network_policy(&PackageConfig {
        project: project.as_ref(),
        image: &files,
        env: &env,
    }))
}

/// The files of package clients in an image, and its variables. A missing image is reported when a sandbox is created
/// from it.
async fn read_image(
    context: &AssemblyContext,
    config: &Config,
    name: &str,
) -> Result<(ImageFiles, BTreeMap<String, String>), AssemblyError> {
    if provider::image_source(context, config) != ImageSource::EngineImage {
        return Ok(Default::default());
    }
    let engine = context.surroundings.image_builder().await?.engine;
    let Some(found) = engine.image(name).await? else {
        return Ok(Default::default());
    };
    let env = found.variables();
    let paths: BTreeSet<String> = presets(config)
        .flat_map(|packages| packages.image_paths(&env))
        .collect();
    let cache = provider::docker_options(&context.surroundings, config)?.cache;
    let now = context.surroundings.now();
    Ok((engine.image_files(&found.id, &paths, &cache, now).await?, env))
}

/// Whether the policy depends on what is in the image.
pub(crate) fn depends_on_image(config: &Config) -> bool {
    presets(config).next().is_some()
}

fn presets(config: &Config) -> impl Iterator<Item = &'static PackageClient> {
    let presets = config.settings.sandbox.network.presets.iter();
    presets.filter_map(|preset| match preset {
        Preset::Packages(packages) => Some(*packages),
        Preset::Service { .. } => None,
    })
}
