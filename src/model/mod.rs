//! Models: requests, replies and the errors that the runner distinguishes.
//!
//! [`OpenAiCompatible`] calls LiteLLM, any other chat-completions endpoint, or one of the [`DIRECT_SERVICES`].
//! [`ScriptedModel`] answers from a file.
//! [`ModelRequest::worst_case`] bounds what a call can use before it is made.
//!
//! ```
//! use ralph::Profile;
//! use ralph::model::{CallPurpose, ModelMessage, ModelRequest};
//!
//! let request = ModelRequest {
//!     profile: Profile::new("cheap", "zai/glm-4.7"),
//!     messages: vec![ModelMessage::user("Say hello.")],
//!     iteration: 1,
//!     call: 0,
//!     purpose: CallPurpose::Agent,
//! };
//! assert!(request.worst_case().total() > 0);
//! ```

mod direct;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod message;
mod openai;
mod prices;
mod profile;
mod reply;
mod request;
mod retry;
mod routed_model;
mod script;
mod scripted_model;
mod service;
mod unrouted_model;

use async_trait::async_trait;

pub(crate) use direct::is_nearby;
pub use direct::{DIRECT_SERVICES, DirectService};
pub use error::{AttemptError, ModelError};
pub use message::{MessageRole, ModelMessage};
pub use openai::{EndpointError, ModelEndpoint, OpenAiCompatible};
pub(crate) use openai::{EventParser, known_cost, quoted_cost, read_refusal, retry_after};
pub use prices::{BilledTokens, ListPrice, PriceTable};
pub use profile::Profile;
pub use reply::ModelReply;
pub use request::{CallPurpose, ModelRequest};
pub use retry::{CallTimeouts, RetryPolicy};
pub use routed_model::RoutedModel;
pub use script::{Script, ScriptError};
pub use scripted_model::ScriptedModel;
pub use service::{
    ANTHROPIC, ANTHROPIC_KEY, ANTHROPIC_LOGIN, AuthMethod, CURSOR, CredentialKind, CredentialRecord, GATEWAY,
    GATEWAY_KEY, GOOGLE, MODEL_SERVICES, ModelService, OPENAI, OPENAI_KEY, UnknownAuthMethod,
};
pub(crate) use service::{
    ApiError, ApiUsage, CallError, CallRules, ModelApi, ModelRoute, UsageReader, only_listing_is_forbidden,
};
pub(crate) use unrouted_model::UnroutedModel;

/// Answers requests.
#[async_trait]
pub trait Model: Send + Sync {
    /// Answers one request.
    ///
    /// `on_text` gets the text as it arrives, for display only. It never gets the same text twice: if an attempt fails
    /// after it passed some text on, later attempts pass nothing on. The reply has the complete text.
    async fn answer(&self, request: &ModelRequest, on_text: OnText<'_>) -> Result<ModelReply, ModelError>;

    /// What records call the model that answers for this profile: the model that the profile names by default.
    fn name<'a>(&'a self, profile: &'a Profile) -> &'a str {
        &profile.litellm_model
    }
}

/// Receives the text of an answer as it arrives.
pub type OnText<'a> = &'a mut (dyn FnMut(&str) + Send);
