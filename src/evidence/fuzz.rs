//! The fuzz body of evidence notes, which anyone who can push can write.

use std::sync::LazyLock;

use super::envelope::Envelope;
use super::key::{SigningKey, VerifyingKey};
use super::note::{TrustedKey, envelopes, verify};
use super::statement::{EvidenceStatement, PAYLOAD_TYPE};
use crate::id::ObjectId;

/// A key that signs a payload, and one that signs nothing.
static KEYS: LazyLock<[SigningKey; 2]> = LazyLock::new(|| {
    let key = || SigningKey::generate().unwrap_or_else(|error| panic!("{error}"));
    [key(), key()]
});

/// The note of a commit. The same bytes are also a signed payload, and a key.
pub(crate) fn evidence_note(bytes: &[u8]) {
    let Ok(commit) = ObjectId::parse(&"a".repeat(40)) else {
        panic!("40 digits are an id");
    };
    let [signing, other] = &*KEYS;
    assert!(verify(bytes, &commit, &[trusted(signing), trusted(other)]).is_err());
    for envelope in envelopes(bytes) {
        let payload = envelope.payload_bytes().unwrap_or_default();
        let _ = EvidenceStatement::parse(&envelope.payload_type, &payload);
    }
    is_verified_as_signed(bytes, &commit);
    if let Ok(key) = VerifyingKey::parse("a key", &String::from_utf8_lossy(bytes)) {
        assert_eq!(VerifyingKey::parse("a key", &key.pem()).ok(), Some(key));
    }
}

/// Of a signed payload, exactly the statements about the commit count, and only for a key that signed it.
fn is_verified_as_signed(payload: &[u8], commit: &ObjectId) {
    let [signing, other] = &*KEYS;
    let envelope = Envelope::sign(PAYLOAD_TYPE, payload, signing);
    let note = serde_json::to_vec(&envelope).unwrap_or_else(|error| panic!("{error}"));
    assert!(verify(&note, commit, &[trusted(other)]).is_err());
    let expected = EvidenceStatement::parse(PAYLOAD_TYPE, payload)
        .and_then(|statement| statement.check_subject(commit).map(|()| statement));
    match (verify(&note, commit, &[trusted(signing)]), expected) {
        (Ok(verified), Ok(statement)) => {
            assert_eq!(verified.len(), 1);
            assert_eq!(verified[0].signer, trusted(signing));
            assert_eq!(verified[0].statement, statement);
            let written = serde_json::to_vec(&statement).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(EvidenceStatement::parse(PAYLOAD_TYPE, &written), Ok(statement));
        }
        (verified, expected) => assert_eq!(verified.err(), expected.err()),
    }
}

fn trusted(key: &SigningKey) -> TrustedKey {
    TrustedKey {
        source: "the host".to_owned(),
        key: key.public(),
    }
}
