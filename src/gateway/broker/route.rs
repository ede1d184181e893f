//! The few things that may be asked with a credential.

use hyper::Method;

use crate::gateway::meter::Protocol;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Messages,
    CountTokens,
    Responses,
    Chat,
    Models,
    /// How the broker itself is.
    Health,
}

impl Route {
    /// Reads a request line. The path is taken letter by letter: nothing is decoded, so nothing can be smuggled.
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
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

    /// The language of a call that costs something; `None` for what is free.
    pub(super) fn metered(self) -> Option<Protocol> {
        match self {
            Self::Messages => Some(Protocol::Messages),
            Self::Responses => Some(Protocol::Responses),
            Self::Chat => Some(Protocol::Chat),
            Self::CountTokens | Self::Models | Self::Health => None,
        }
    }
}
