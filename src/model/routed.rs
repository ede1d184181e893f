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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Message, Profile, Purpose, Script, ScriptedModel};

    fn saying(text: &str) -> Arc<dyn Model> {
        let script = format!("iterations: [[{{text: {text}}}]]");
        Arc::new(ScriptedModel::new(Script::parse(&script).unwrap()))
    }

    #[tokio::test]
    async fn a_call_goes_to_the_endpoint_of_its_profile() {
        let routed = Routed::new(
            saying("usual"),
            BTreeMap::from([("strong".to_owned(), saying("other"))]),
        );
        for (profile, expected) in [("cheap", "usual"), ("strong", "other")] {
            let request = Request {
                profile: Profile::new(profile, "m"),
                messages: vec![Message::user("hi")],
                iteration: 1,
                call: 0,
                purpose: Purpose::Agent,
            };
            let reply = routed.answer(&request, &mut |_| {}).await.unwrap();
            assert_eq!(reply.text, expected);
        }
    }
}
