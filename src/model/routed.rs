//! Models that are reached at different addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Model, ModelError, OnText, Reply, Request};

/// Passes each call on to the endpoint of its profile.
pub struct Routed {
    usual: Arc<dyn Model>,
    by_profile: BTreeMap<String, Arc<dyn Model>>,
}

impl Routed {
    /// One endpoint for every profile, and others for the profiles of these names.
    #[must_use]
    pub fn new(usual: Arc<dyn Model>, by_profile: BTreeMap<String, Arc<dyn Model>>) -> Self {
        Self { usual, by_profile }
    }
}

#[async_trait]
impl Model for Routed {
    async fn answer(&self, request: &Request, on_text: OnText<'_>) -> Result<Reply, ModelError> {
        let endpoint = self.by_profile.get(&request.profile.name).unwrap_or(&self.usual);
        endpoint.answer(request, on_text).await
    }
}
