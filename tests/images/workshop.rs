//! Where a test works: an engine, a folder, and a name of its own, all of which are left as they were found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ralph::engine::{Engine, EngineError, EngineImage, EngineImageReference};
use ralph::exec::Discard;
use ralph::id::RunId;
use ralph::image::ImageError;
use ralph::image::load::{
    LayerCache, LayerOrder, LoadRequest, LoadSource, LoadedImage, OmittableLayers, load,
};

use super::archive::TestImage;
use super::support;
use super::support::engine::Which;

/// What every image of a test carries.
pub const LABEL: &str = "ralph.test";

pub struct Workshop {
    pub engine: Engine,
    pub name: String,
    pub busybox: PathBuf,
    dir: tempfile::TempDir,
}

impl Workshop {
    /// A workshop with the engine that is found, or why the test cannot run.
    pub async fn open() -> Result<Self, String> {
        Self::open_with(Which::Found).await
    }

    /// A workshop with one of the engines, or why the test cannot run.
    pub async fn open_with(which: Which) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let engine = support::engine::engine_of(which, &dir.path().join("docker")).await?;
        Self::open_on(engine, dir)
    }

    /// A workshop with an engine that only this test has.
    pub async fn open_at(host: &str) -> Result<Self, String> {
        let engine = support::engine::engine_at(host).await?;
        Self::open_on(engine, tempfile::tempdir().unwrap())
    }

    fn open_on(engine: Engine, dir: tempfile::TempDir) -> Result<Self, String> {
        Ok(Self {
            engine,
            name: RunId::random().to_string(),
            busybox: support::skip::program("busybox")?,
            dir,
        })
    }

    /// What this engine lets us leave out of an image.
    pub async fn omittable(&self) -> OmittableLayers {
        OmittableLayers::for_engine(&self.engine.info().await.unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A name for an image that no other test uses.
    pub fn tag(&self, tag: &str) -> EngineImageReference {
        EngineImageReference::parse(&format!("ralph-test-{}:{tag}", self.name)).unwrap()
    }

    /// `name=value` of the label that this test's images carry.
    pub fn label(&self) -> String {
        format!("{LABEL}={}", self.name)
    }

    /// An image whose layers no other test has.
    pub fn image(&self, sizes: &[usize]) -> TestImage {
        TestImage::new(&self.busybox, &self.name, sizes)
    }

    pub fn request(&self, source: LoadSource, tag: &str) -> LoadRequest {
        LoadRequest {
            source,
            order: LayerOrder::Free,
            labels: BTreeMap::from([(LABEL.to_owned(), self.name.clone())]),
            tag: self.tag(tag),
            cache: self.cache(),
        }
    }

    pub fn cache(&self) -> LayerCache {
        LayerCache::new(self.path("cache"))
    }

    /// Writes the image as a plain archive and loads it.
    pub async fn load(&self, image: &TestImage, tag: &str) -> Result<LoadedImage, ImageError> {
        let source = LoadSource::Archive(image.write(&self.path(tag)));
        load(&self.engine, &self.request(source, tag), &mut Discard).await
    }

    /// What an image of this tag prints.
    pub fn run(&self, tag: &str) -> String {
        support::engine::run(&self.engine, &self.tag(tag).to_string(), &[])
    }

    pub async fn find(&self, tag: &str) -> Option<EngineImage> {
        self.engine.image(&self.tag(tag).to_string()).await.unwrap()
    }

    /// The images of this test that the engine has.
    pub async fn images(&self) -> Vec<EngineImage> {
        self.engine.images(Some(&self.label())).await.unwrap()
    }

    /// Leaves the engine as it was found. An image goes after those that stand on it, whatever the order in which the
    /// engine lists them.
    pub async fn close(self) {
        let mut left = self.images().await;
        while !left.is_empty() {
            let before = left.len();
            for image in &left {
                match self.engine.remove_image(&image.id.to_string()).await {
                    Err(EngineError::Conflict { .. }) => {}
                    removed => removed.unwrap(),
                }
            }
            left = self.images().await;
            assert!(left.len() < before, "these images cannot be removed: {left:?}");
        }
    }
}
