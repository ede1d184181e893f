//! Where notices go.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::digest::Digest;
use crate::secret::Secret;

use super::NotifyEvent;

/// A receiver and the events that it wants.
#[derive(Clone, Debug)]
pub struct NotifyChannel {
    /// The events.
    pub events: Vec<NotifyEvent>,
    /// The receiver.
    pub address: ChannelAddress,
}

/// A receiver. Addresses are secret: some contain a credential.
#[derive(Clone, Debug)]
pub enum ChannelAddress {
    /// A POST of JSON, signed by Standard Webhooks if there is a key.
    Webhook {
        /// The address.
        url: Secret,
        /// The key of the signature.
        key: Option<WebhookKey>,
    },
    /// An incoming webhook of Slack.
    Slack {
        /// The address.
        url: Secret,
    },
    /// A topic of an ntfy server.
    Ntfy {
        /// The address of the topic.
        url: Secret,
        /// The access token.
        token: Option<Secret>,
    },
    /// A program on the host, with its arguments.
    Command(Vec<String>),
}

impl ChannelAddress {
    /// The name of its kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Slack { .. } => "slack",
            Self::Ntfy { .. } => "ntfy",
            Self::Command(_) => "command",
        }
    }

    /// Its name in the record of deliveries: the same after a restart, and without the address.
    pub(super) fn label(&self) -> String {
        let digest = match self {
            Self::Webhook { url, .. } | Self::Slack { url } | Self::Ntfy { url, .. } => {
                Digest::sha256(url.expose().as_bytes())
            }
            Self::Command(words) => Digest::sha256_fields(words),
        };
        format!("{}:{}", self.kind(), &digest.hex()[..12])
    }
}

/// The key of a webhook's signature.
#[derive(Clone, Debug)]
pub struct WebhookKey(hmac::Key);

/// A text that is no key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a key of a webhook is `whsec_` and base64 of at least 24 bytes")]
pub struct WebhookKeyError;

impl WebhookKey {
    /// Reads a key as Standard Webhooks writes it: `whsec_`, then base64.
    pub fn parse(text: &Secret) -> Result<Self, WebhookKeyError> {
        let encoded = text.expose().trim().strip_prefix("whsec_");
        let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        let bytes = bytes.filter(|bytes| bytes.len() >= 24).ok_or(WebhookKeyError)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let signed = format!("{id}.{timestamp}.{body}");
        let signature = hmac::sign(&self.0, signed.as_bytes());
        format!("v1,{}", STANDARD.encode(signature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let key = WebhookKey::parse(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
        let signature = key.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[rstest::rstest]
    #[case::no_prefix("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    #[case::no_base64("whsec_%%%%")]
    #[case::short("whsec_aGVsbG8=")]
    fn a_text_that_is_no_key_is_refused(#[case] text: &str) {
        assert_eq!(
            WebhookKey::parse(&Secret::new(text)).unwrap_err(),
            WebhookKeyError
        );
    }

    #[test]
    fn a_label_distinguishes_receivers_without_their_address() {
        let slack = |url: &str| {
            ChannelAddress::Slack {
                url: Secret::new(url),
            }
            .label()
        };
        assert_ne!(slack("https://a.example/T1"), slack("https://a.example/T2"));
        assert!(!slack("https://a.example/T1").contains("example"));
    }
}
