//! A model that cannot be called.

use async_trait::async_trait;

use super::{Model, ModelError, ModelReply, ModelRequest, OnText};

/// Refuses every call: its profile has no key or no service.
#[derive(Debug)]
pub(crate) struct UnroutedModel {
    /// Why it cannot be called, with the next step.
    pub(crate) reason: String,
}

#[async_trait]
impl Model for UnroutedModel {
    async fn answer(&self, request: &ModelRequest, _on_text: OnText<'_>) -> Result<ModelReply, ModelError> {
        Err(ModelError::NotConfigured {
            profile: request.profile.name.clone(),
            reason: self.reason.clone(),
        })
    }
}
