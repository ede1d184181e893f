//! What making an image needs besides an engine.

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

/// What making an image needs besides an engine.
#[derive(Clone)]
pub struct Tools {
    /// Starts `nix` and `git`; its variables are those that they see.
    pub host: Host,
    /// A directory for what is remembered and for logs. All of it can be deleted.
    pub cache: PathBuf,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
}

impl Tools {
    pub(super) fn contexts(&self) -> HashCache {
        HashCache::new(self.cache.join("contexts"), Arc::clone(&self.clock))
    }

    pub(super) fn flakes(&self) -> FlakeCache {
        FlakeCache::new(self.cache.join("flakes"), Arc::clone(&self.clock))
    }

    pub(super) fn layers(&self) -> LayerCache {
        LayerCache::new(self.cache.join("layers"))
    }

    pub(super) fn pulls(&self, engine: &Engine) -> PullLog {
        PullLog::new(self.cache.join("pulls.json"), engine.endpoint().clone())
    }

    /// Where the log of an image's last build is kept.
    pub(super) fn log_of(&self, tag: &ImageTag) -> PathBuf {
        let name = format!("{}-{}.log", tag.repository(), tag.version());
        self.cache.join("logs").join(name)
    }
}
