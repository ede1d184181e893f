//! Which image a command works on.

use std::ffi::OsString;
use std::path::Path;

use crate::assembly::configuration::project_dir;
use crate::assembly::provider::ImageSource;
use crate::assembly::{image, provider, provider_image};
use crate::cli::{CliError, Context, ErrorTopic, agent_help, choice_options, configuration, flags};
use crate::config::{Config, SandboxType};
use crate::engine::{Engine, EngineError, EngineImageReference};
use crate::image::{
    BuildEnvironment, BuildSource, ImageBuilder, ImageError, ImageRecipe, ImageRequest, Platform,
};
use crate::nix::Installable;

use super::provider_images::ProviderImageSet;

/// The flags of every `image` command.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ImageFlags {
    /// Build from a Dockerfile even if there is a flake: from this one, with its directory as build context, or from
    /// the agent's template
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "", conflicts_with = "flake")]
    dockerfile: Option<OsString>,
    /// Build from this flake: a directory (`./nix#sandbox`), or an address with a commit
    #[arg(long, value_name = "REF")]
    flake: Option<Installable>,
    #[arg(long, value_name = "NAME", help = agent_help("The agent"))]
    agent: Option<String>,
    /// The provider that the image is for: docker, docker-sandbox, tart (templates), daytona (snapshots) or local;
    /// without it, the configured one
    #[arg(long = "type", value_name = "PROVIDER")]
    provider: Option<String>,
    /// The platform: linux/amd64 or linux/arm64 [default: the engine's own]
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<Platform>,
}

impl ImageFlags {
    /// Reads the configuration, and the flags on top of it.
    pub(super) fn setup<'a>(&self, context: &'a Context) -> Result<ImageSetup<'a>, CliError> {
        let surroundings = context.surroundings();
        let overrides = flags([
            ("--agent", "agent.name", self.agent.clone()),
            ("--type", "sandbox.type", self.provider.clone()),
        ]);
        let config = configuration(context, overrides)?;
        let mut request = image::request(&config, &project_dir(surroundings.dir()));
        request.platform = self.platform.or(request.platform);
        if let Some(source) = self.source(surroundings.dir(), &config) {
            request.source = source;
        }
        Ok(ImageSetup {
            context,
            config,
            environment: surroundings.build_environment()?,
            request,
        })
    }

    /// What uses the image of these flags. Runs cannot choose what an image is built from.
    pub(super) fn next_step(&self) -> String {
        if self.dockerfile.is_some() || self.flake.is_some() || self.platform.is_some() {
            return "`ralph image status` lists the images".to_owned();
        }
        let options = choice_options(self.provider.as_deref(), self.agent.as_deref());
        format!("`ralph run{options}` starts its sandbox from it; `ralph selftest{options}` tries one")
    }

    fn source(&self, cwd: &Path, config: &Config) -> Option<BuildSource> {
        Some(match (&self.dockerfile, &self.flake) {
            (Some(path), _) if path.is_empty() => BuildSource::Template,
            (Some(path), _) => BuildSource::Dockerfile(cwd.join(path)),
            (None, Some(named)) => BuildSource::Flake {
                flake: named.flake.resolve(cwd),
                attribute: named
                    .attribute
                    .clone()
                    .unwrap_or_else(|| config.settings.image.nix.attribute.clone()),
            },
            (None, None) => return None,
        })
    }
}

/// What every `image` command works with.
pub(super) struct ImageSetup<'a> {
    context: &'a Context,
    pub(super) config: Config,
    pub(super) environment: BuildEnvironment,
    pub(super) request: ImageRequest,
}

impl ImageSetup<'_> {
    /// Connects to the engine.
    pub(super) async fn connect(&self) -> Result<ImageBuilder, EngineError> {
        let surroundings = self.context.surroundings();
        Ok(ImageBuilder {
            engine: Engine::connect(&surroundings.engine(), &self.environment.host).await?,
            environment: self.environment.clone(),
        })
    }

    /// Reads what the image is built from, and reports why a flake is not used.
    pub(super) async fn read(&self, builder: Option<&ImageBuilder>) -> Result<ImageRecipe, CliError> {
        let engine = builder.map(|builder| &builder.engine);
        let recipe = self.request.read(engine, &self.environment).await?;
        image::report_skipped_flake(&self.context.assembly, &recipe);
        Ok(recipe)
    }

    /// The templates or snapshots of the provider; `None` if its sandboxes start from images of an engine, or from none.
    pub(super) async fn provider_images(&self) -> Result<Option<ProviderImageSet>, CliError> {
        let (context, config) = (&self.context.assembly, &self.config);
        let provider = provider::create_provider(context, config)?;
        if provider.images().is_none() {
            return Ok(None);
        }
        provider.check().await?;
        let planned = provider_image::plan(context, config, &self.request).await?;
        Ok(Some(ProviderImageSet {
            spec: planned.spec(context, config),
            provider,
            planned,
        }))
    }

    /// Whether `build` makes the template or snapshot itself. An image that Daytona pulls is built with the engine.
    pub(super) fn builds_at_provider(&self) -> bool {
        let source = provider::image_source(&self.context.assembly, &self.config);
        match self.config.provider() {
            SandboxType::Tart => true,
            SandboxType::Daytona => source == ImageSource::SentDockerfile,
            SandboxType::Docker | SandboxType::DockerSandbox | SandboxType::Local => false,
        }
    }

    /// The image to pull or push.
    pub(super) fn remote(&self) -> Result<RemoteImage<'_>, CliError> {
        let sandbox = &self.config.settings.sandbox;
        match (&sandbox.image, &sandbox.registry) {
            (Some(name), _) => {
                let name = EngineImageReference::parse(name).map_err(ImageError::from)?;
                Ok(RemoteImage::Named(name))
            }
            (None, Some(registry)) => Ok(RemoteImage::Planned { registry }),
            (None, None) => Err(
                CliError::usage("neither `sandbox.image` nor `sandbox.registry` is set").with_topic(ErrorTopic::Image).with_hint(
                    "set `sandbox.registry = \"ghcr.io/team\"` for planned images, or `sandbox.image` to one image",
                ),
            ),
        }
    }
}

/// The image to pull or push.
pub(super) enum RemoteImage<'a> {
    /// The image that `sandbox.image` names.
    Named(EngineImageReference),
    /// The planned image, in this registry.
    Planned { registry: &'a str },
}
