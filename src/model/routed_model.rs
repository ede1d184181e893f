//! Models at different endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Model, ModelError, ModelReply, ModelRequest, OnText};

/// Forwards each call to the model of its profile.
pub struct RoutedModel {
    default: Arc<dyn Model>,
    by_profile: BTreeMap<String, Arc<dyn Model>>,
}

impl RoutedModel {
    /// Uses `default` for every profile that is not in `by_profile`.
    #[must_use]
    pub fn new(default: Arc<dyn Model>, by_profile: BTreeMap<String, Arc<dyn Model>>) -> Self {
        Self { default, by_profile }
    }
}

#[async_trait]
impl Model for RoutedModel {
    async fn answer(&self, request: &ModelRequest, on_text: OnText<'_>) -> Result<ModelReply, ModelError> {
        let model = self
            .by_profile
            .get(&request.profile.name)
            .unwrap_or(&self.default);
        model.answer(request, on_text).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallPurpose, ModelMessage, Profile, Script, ScriptedModel};

    fn saying(text: &str) -> Arc<dyn Model> {
        let script = format!("iterations: [[{{text: {text}}}]]");
        Arc::new(ScriptedModel::new(Script::parse(&script).unwrap()))
    }

    #[tokio::test]
    async fn calls_go_to_the_model_of_their_profile() {
        let routed = RoutedModel::new(
            saying("usual"),
            BTreeMap::from([("strong".to_owned(), saying("other"))]),
        );
        for (profile, expected) in [("cheap", "usual"), ("strong", "other")] {
            let request = ModelRequest {
                profile: Profile::new(profile, "m"),
                messages: vec![ModelMessage::user("hi")],
                iteration: 1,
                call: 0,
                purpose: CallPurpose::Agent,
            };
            let reply = routed.answer(&request, &mut |_| {}).await.unwrap();
            assert_eq!(reply.text, expected);
        }
    }
}
