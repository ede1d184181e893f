//! What every `image` command starts from: where one is, what is configured, and the engine.

use std::path::PathBuf;

use crate::assembly::configuration::project_dir;
use crate::assembly::image;
use crate::config::Config;
use crate::engine::{Engine, EngineError};
use crate::image::{Recipe, Tools, Wish};

use super::super::Context;
use super::super::error::CliError;
use super::super::overrides::configuration;
use super::wanted::Wanted;

/// Where a command works.
pub(super) struct Scene<'a> {
    context: &'a Context,
    pub(super) config: Config,
    pub(super) tools: Tools,
    project: PathBuf,
}

impl<'a> Scene<'a> {
    pub(super) fn of(context: &'a Context, wanted: &Wanted) -> Result<Self, CliError> {
        Ok(Self {
            context,
            config: configuration(context, wanted.given())?,
            tools: image::tools(&context.assembly)?,
            project: project_dir(context.surroundings().dir()),
        })
    }

    pub(super) async fn engine(&self) -> Result<Engine, EngineError> {
        image::engine(&self.context.assembly, &self.tools).await
    }

    pub(super) fn wish(&self, wanted: &Wanted) -> Wish {
        wanted.wish(self.context, &self.config, &self.project)
    }

    /// Reads what the image is made from, and says why a flake is not used.
    pub(super) async fn read(&self, wish: &Wish, engine: Option<&Engine>) -> Result<Recipe, CliError> {
        Ok(image::read(&self.context.assembly, wish, engine, &self.tools).await?)
    }
}
