//! What building images on the host needs besides an engine.

use std::path::PathBuf;
use std::sync::Arc;

use super::context::HashCache;
use super::load::LayerCache;
use super::pulls::PullLog;
use super::tag::ImageTag;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::exec::Host;
use crate::nix::FlakeCache;

/// What building images on the host needs besides an engine.
#[derive(Clone)]
pub struct BuildEnvironment {
    /// Starts `nix` and `git`, with its environment variables.
    pub host: Host,
    /// A directory for caches and build logs. It can be deleted at any time.
    pub cache_dir: PathBuf,
    /// The current time.
    pub clock: Arc<dyn Clock>,
}

impl BuildEnvironment {
    pub(super) fn context_hashes(&self) -> HashCache {
        HashCache::new(self.cache_dir.join("contexts"), Arc::clone(&self.clock))
    }

    pub(super) fn flakes(&self) -> FlakeCache {
        FlakeCache::new(self.cache_dir.join("flakes"), Arc::clone(&self.clock))
    }

    pub(super) fn layers(&self) -> LayerCache {
        LayerCache::new(self.cache_dir.join("layers"))
    }

    pub(super) fn pulls(&self, engine: &Engine) -> PullLog {
        PullLog::new(self.cache_dir.join("pulls.json"), engine.endpoint().clone())
    }

    /// The log file of an image's last build.
    pub(super) fn build_log(&self, tag: &ImageTag) -> PathBuf {
        let name = format!("{}-{}.log", tag.repository(), tag.version());
        self.cache_dir.join("logs").join(name)
    }
}
