//! Requests for models in tests.

use std::time::Duration;

use ralph::model::{CallPurpose, CallTimeouts, ModelMessage, ModelRequest, Profile, RetryPolicy};

/// A call of the default profile that says this.
pub fn request(text: &str) -> ModelRequest {
    ModelRequest {
        profile: Profile {
            name: "default-cheap".to_owned(),
            litellm_model: "zai/glm-4.7".to_owned(),
            max_output_tokens: 2048,
            temperature: Some(0.2),
            price: None,
            list_price: None,
            tags: Vec::new(),
        },
        messages: vec![ModelMessage::user(text)],
        iteration: 1,
        call: 0,
        purpose: CallPurpose::Agent,
    }
}

/// The usual number of attempts, at the speed of a test.
pub fn quick() -> CallTimeouts {
    CallTimeouts {
        retry: RetryPolicy {
            base: Duration::from_millis(2),
            ..RetryPolicy::default()
        },
        ..CallTimeouts::default()
    }
}
