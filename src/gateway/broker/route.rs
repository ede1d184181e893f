//! The API paths that a credential is added to.

use hyper::Method;

use crate::gateway::meter::ModelProtocol;

/// An API path of a model service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelRoute {
    Messages,
    CountTokens,
    Responses,
    Chat,
    Models,
    /// The health check of the broker itself.
    Health,
}

impl ModelRoute {
    /// Matches a request line exactly. Nothing is decoded, so that no other path can be smuggled in.
    pub(super) fn parse(method: &Method, path: &str) -> Option<Self> {
        match (method.as_str(), path) {
            ("POST", "/v1/messages") => Some(Self::Messages),
            ("POST", "/v1/messages/count_tokens") => Some(Self::CountTokens),
            ("POST", "/v1/responses") => Some(Self::Responses),
            ("POST", "/v1/chat/completions") => Some(Self::Chat),
            ("GET", "/v1/models") => Some(Self::Models),
            ("GET", "/health") => Some(Self::Health),
            _ => None,
        }
    }

    /// The protocol of a call that costs something; `None` when it is free.
    pub(super) fn metered(self) -> Option<ModelProtocol> {
        match self {
            Self::Messages => Some(ModelProtocol::Messages),
            Self::Responses => Some(ModelProtocol::Responses),
            Self::Chat => Some(ModelProtocol::Chat),
            Self::CountTokens | Self::Models | Self::Health => None,
        }
    }
}
