//! DSSE envelopes (<https://github.com/secure-systems-lab/dsse>): a payload, its type, and signatures over both.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::{Deserialize, Serialize};

use super::key::{SigningKey, VerifyingKey};

/// A signed payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The payload in base64.
    pub payload: String,
    /// What the payload is.
    pub payload_type: String,
    /// The signatures. None of them is trusted by itself.
    pub signatures: Vec<EnvelopeSignature>,
}

/// A signature and what it claims about its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    /// The id of the key, as the signer claims it. Anyone can write anything there.
    #[serde(default)]
    pub keyid: String,
    /// The signature in base64.
    pub sig: String,
}

impl Envelope {
    /// Signs a payload.
    #[must_use]
    pub fn sign(payload_type: &str, payload: &[u8], key: &SigningKey) -> Self {
        let signature = key.sign(&signed_bytes(payload_type, payload));
        Self {
            payload: STANDARD.encode(payload),
            payload_type: payload_type.to_owned(),
            signatures: vec![EnvelopeSignature {
                keyid: key.public().id().to_string(),
                sig: STANDARD.encode(signature),
            }],
        }
    }

    /// The payload. It proves nothing before [`Envelope::is_signed_by`].
    #[must_use]
    pub fn payload_bytes(&self) -> Option<Vec<u8>> {
        decode(&self.payload)
    }

    /// Whether this key signed the payload and its type.
    #[must_use]
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        let Some(payload) = self.payload_bytes() else {
            return false;
        };
        let message = signed_bytes(&self.payload_type, &payload);
        let mut signatures = self.signatures.iter().filter_map(|one| decode(&one.sig));
        signatures.any(|signature| key.has_signed(&message, &signature))
    }
}

/// What is signed: DSSE's pre-authentication encoding.
fn signed_bytes(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// DSSE allows both alphabets of base64.
fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_that_of_the_specification() {
        assert_eq!(
            signed_bytes("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
        assert_eq!(
            signed_bytes("", "\u{e9}".as_bytes()),
            "DSSEv1 0  2 \u{e9}".as_bytes()
        );
    }

    #[test]
    fn any_change_breaks_the_signature() {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let signed = Envelope::sign("type", b"payload", &key);
        let public = key.public();
        assert!(signed.is_signed_by(&public));
        assert!(!signed.is_signed_by(&other.public()));

        let changed = |change: fn(&mut Envelope)| {
            let mut envelope = signed.clone();
            change(&mut envelope);
            envelope
        };
        assert!(!changed(|one| one.payload = STANDARD.encode("payload!")).is_signed_by(&public));
        assert!(!changed(|one| one.payload_type = "typ".to_owned()).is_signed_by(&public));
        assert!(!changed(|one| one.signatures.clear()).is_signed_by(&public));
        assert!(!changed(|one| one.signatures[0].sig = String::new()).is_signed_by(&public));
        let flipped = changed(|one| {
            let mut signature = STANDARD.decode(&one.signatures[0].sig).unwrap();
            signature[7] ^= 1;
            one.signatures[0].sig = STANDARD.encode(signature);
        });
        assert!(!flipped.is_signed_by(&public));
        // The claimed key id decides nothing.
        let mut claimed = Envelope::sign("type", b"payload", &other);
        claimed.signatures[0].keyid = public.id().to_string();
        assert!(!claimed.is_signed_by(&public));
        assert!(changed(|one| one.signatures[0].keyid.clear()).is_signed_by(&public));
    }
}
