//! The fuzz body of evidence notes, which anyone who can push can write.

use std::sync::LazyLock;

use super::key::{SigningKey, VerifyingKey};
use super::note::{TrustedKey, envelopes, verify};
use super::statement::EvidenceStatement;
use crate::id::ObjectId;

/// A key that has signed nothing.
static KEY: LazyLock<VerifyingKey> = LazyLock::new(|| match SigningKey::generate() {
    Ok(key) => key.public(),
    Err(error) => panic!("{error}"),
});

/// The note of a commit.
pub(crate) fn evidence_note(note: &[u8]) {
    let Ok(commit) = ObjectId::parse(&"a".repeat(40)) else {
        panic!("40 digits are an id");
    };
    let trusted = TrustedKey {
        source: "the host".to_owned(),
        key: *KEY,
    };
    assert!(verify(note, &commit, &[trusted]).is_err());
    for envelope in envelopes(note) {
        let payload = envelope.payload_bytes().unwrap_or_default();
        if let Ok(statement) = EvidenceStatement::parse(&envelope.payload_type, &payload) {
            let _ = statement.check_subject(&commit);
        }
    }
    let _ = EvidenceStatement::parse(super::statement::PAYLOAD_TYPE, note);
    if let Ok(key) = VerifyingKey::parse("a key", &String::from_utf8_lossy(note)) {
        assert_eq!(VerifyingKey::parse("a key", &key.pem()).ok(), Some(key));
    }
}
