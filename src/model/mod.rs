//! Models: what is asked, what comes back, and the errors the loop must tell apart.
//!
//! [`OpenAiCompatible`] calls LiteLLM or any endpoint that speaks the same language; [`ScriptedModel`] answers from a
//! file. What a call costs at the most is known before it is made: [`Request::worst_case`].

mod error;
mod message;
mod openai;
mod profile;
mod reply;
mod request;
mod retry;
mod routed;
mod script;
mod scripted;

use async_trait::async_trait;

pub use error::{Breakdown, ModelError};
pub use message::{Message, Role};
pub use openai::{Endpoint, EndpointError, OpenAiCompatible};
pub(crate) use openai::{EventParser, asked_for, known_cost, quoted_cost};
pub use profile::Profile;
pub use reply::Reply;
pub use request::{Purpose, Request};
pub use retry::{Patience, RetryPolicy};
pub use routed::Routed;
pub use script::{Script, ScriptError};
pub use scripted::ScriptedModel;

/// Something that answers. The real endpoint and the scripted model are two of these.
#[async_trait]
pub trait Model: Send + Sync {
    /// Answers one call.
    ///
    /// `on_text` sees text as it arrives, for display alone. It is never shown the same text twice: where an attempt
    /// broke off after it had shown some, later attempts show nothing. What counts is the text of the reply.
    async fn answer(&self, request: &Request, on_text: OnText<'_>) -> Result<Reply, ModelError>;
}

/// Receives the text of an answer as it arrives.
pub type OnText<'a> = &'a mut (dyn FnMut(&str) + Send);
