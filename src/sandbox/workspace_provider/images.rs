//! What sandboxes with a workspace on the host start from, where the backend keeps it.

use async_trait::async_trait;

use super::super::error::warn_not_removed;
use super::super::name::names;
use super::super::sandbox_dir::SandboxDir;
use super::super::{ProviderImage, ProviderImages, SandboxError, SandboxSpec};
use super::{WorkspaceBackend, WorkspaceProvider};

#[async_trait]
impl<B: WorkspaceBackend> ProviderImages for WorkspaceProvider<B> {
    fn kind(&self) -> &'static str {
        B::IMAGE_KIND.unwrap_or("image")
    }

    async fn list(&self, spec: &SandboxSpec) -> Result<Vec<ProviderImage>, SandboxError> {
        self.backend.check().await?;
        self.backend.images(spec, &SandboxDir::all(&self.base)?).await
    }

    async fn ensure(&self, spec: &SandboxSpec) -> Result<Option<String>, SandboxError> {
        self.backend.check().await?;
        let record = self.new_record(spec, false).await?;
        for name in names(spec, &self.base) {
            let dir = SandboxDir::new(&self.base, &name);
            if dir.create(&record, None)? {
                let ensured = self.backend.ensure_image(&dir, spec).await;
                warn_not_removed(&name, self.discard(&dir).await);
                return ensured;
            }
        }
        Err(SandboxError::names_are_taken(B::NAME, &spec.run))
    }

    async fn remove(&self, name: &str) -> Result<(), SandboxError> {
        self.backend.remove_image(name).await
    }
}
