//! Envelopes in the git note of a commit, and their verification.

use jiff::Timestamp;

use super::envelope::Envelope;
use super::error::EvidenceRefusal;
use super::key::{SigningKey, VerifyingKey};
use super::statement::{EvidenceStatement, PAYLOAD_TYPE};
use crate::id::ObjectId;
use crate::scm::{Repository, ScmError};

/// The ref of the notes. Each note has one envelope per line, so that `cat_sort_uniq` merges two of them.
pub const NOTES_REF: &str = "refs/notes/ralph-evidence";

/// A key that the caller trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKey {
    /// Where it comes from, for people.
    pub source: String,
    /// The key.
    pub key: VerifyingKey,
}

/// A statement that a trusted key signed.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedStatement {
    /// The key.
    pub signer: TrustedKey,
    /// The statement.
    pub statement: EvidenceStatement,
}

/// Signs a statement and adds it to the note of its commit. A statement that is there already is not added again.
pub async fn attach(
    repository: &Repository,
    statement: &EvidenceStatement,
    key: &SigningKey,
    at: Timestamp,
) -> Result<(), AttachError> {
    let payload = serde_json::to_vec(statement)?;
    let line = serde_json::to_string(&Envelope::sign(PAYLOAD_TYPE, &payload, key))?;
    for subject in &statement.subject {
        let commit = &subject.digest.git_commit;
        repository.add_note_line(NOTES_REF, commit, &line, at).await?;
    }
    Ok(())
}

/// Why a statement cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Git failed.
    #[error(transparent)]
    Scm(#[from] ScmError),
    /// It cannot be written as JSON.
    #[error("cannot write the signed statement as JSON")]
    Encode(#[from] serde_json::Error),
}

/// The note of a commit.
pub async fn read_note(repository: &Repository, commit: &ObjectId) -> Result<Option<Vec<u8>>, ScmError> {
    repository.note(NOTES_REF, commit).await
}

/// The envelopes of a note. Other lines are skipped.
#[must_use]
pub fn envelopes(note: &[u8]) -> Vec<Envelope> {
    let lines = note.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// The statements of a note that one of these keys signed for this commit. Others in the note do not matter, because anyone
/// can add them. Fails if no statement counts.
pub fn verify(
    note: &[u8],
    commit: &ObjectId,
    keys: &[TrustedKey],
) -> Result<Vec<VerifiedStatement>, EvidenceRefusal> {
    let mut verified = Vec::new();
    let mut refused = None;
    let mut claimed = Vec::new();
    let envelopes = envelopes(note);
    for envelope in &envelopes {
        let Some(signer) = keys.iter().find(|trusted| envelope.is_signed_by(&trusted.key)) else {
            claimed.extend(envelope.signatures.iter().map(|one| one.keyid.clone()));
            continue;
        };
        match statement_about(envelope, commit) {
            Ok(statement) => verified.push(VerifiedStatement {
                signer: signer.clone(),
                statement,
            }),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        _ if !verified.is_empty() => Ok(verified),
        Some(error) => Err(error),
        None if envelopes.is_empty() => Err(EvidenceRefusal::NoEnvelope),
        None => Err(EvidenceRefusal::NotTrusted(claimed)),
    }
}

fn statement_about(envelope: &Envelope, commit: &ObjectId) -> Result<EvidenceStatement, EvidenceRefusal> {
    let payload = envelope.payload_bytes().unwrap_or_default();
    let statement = EvidenceStatement::parse(&envelope.payload_type, &payload)?;
    statement.check_subject(commit)?;
    Ok(statement)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::*;
    use crate::digest::Digest;
    use crate::evidence::{EvidencePredicate, PolicyDigest};
    use crate::usage::Tokens;

    fn id(digit: char) -> ObjectId {
        ObjectId::parse(&digit.to_string().repeat(40)).unwrap()
    }

    fn statement() -> EvidenceStatement {
        let predicate = EvidencePredicate {
            ralph: "0.1.0".to_owned(),
            task: "t1".to_owned(),
            run: "r2345".to_owned(),
            base: id('b'),
            commands: Vec::new(),
            apart: true,
            shared: Vec::new(),
            provider: "docker".to_owned(),
            image: None,
            network: PolicyDigest {
                mode: "deny".to_owned(),
                digest: Digest::sha256(b"deny"),
            },
            agents: Vec::new(),
            tokens: Tokens::default(),
            cost_usd: None,
        };
        EvidenceStatement::new(id('a'), "ralph/t1/x", predicate)
    }

    fn signed(payload: &Value, key: &SigningKey) -> String {
        let envelope = Envelope::sign(PAYLOAD_TYPE, payload.to_string().as_bytes(), key);
        serde_json::to_string(&envelope).unwrap()
    }

    fn trusted(key: &SigningKey) -> Vec<TrustedKey> {
        vec![TrustedKey {
            source: "test".to_owned(),
            key: key.public(),
        }]
    }

    /// The result of a note with this payload, signed by a trusted key.
    fn verified(payload: &Value) -> Result<Vec<VerifiedStatement>, EvidenceRefusal> {
        let key = SigningKey::generate().unwrap();
        verify(signed(payload, &key).as_bytes(), &id('a'), &trusted(&key))
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut changed = serde_json::to_value(statement()).unwrap();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed
    }

    #[test]
    fn a_statement_has_the_names_of_in_toto() {
        let value = serde_json::to_value(statement()).unwrap();
        assert_eq!(value["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(value["subject"][0]["digest"]["gitCommit"], "a".repeat(40));
        assert_eq!(value["predicateType"], PREDICATE);
        let read = verified(&value).unwrap();
        assert_eq!(read[0].statement, statement());
    }

    const PREDICATE: &str = "https://github.com/ralph/ralph/evidence/v1";

    #[test]
    fn only_a_trusted_key_counts() {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let payload = serde_json::to_value(statement()).unwrap();
        let mut note = signed(&payload, &key);
        let refused = verify(note.as_bytes(), &id('a'), &trusted(&other)).unwrap_err();
        assert_eq!(
            refused,
            EvidenceRefusal::NotTrusted(vec![key.public().id().to_string()])
        );
        assert!(verify(note.as_bytes(), &id('a'), &[]).is_err());

        // A key that comes with the note, in any field, is no trusted key.
        let mut envelope: Value = serde_json::from_str(&note).unwrap();
        envelope["signatures"][0]["publicKey"] = json!(key.public().pem());
        envelope["keys"] = json!([key.public().pem()]);
        assert!(verify(envelope.to_string().as_bytes(), &id('a'), &trusted(&other)).is_err());
        assert!(verify(envelope.to_string().as_bytes(), &id('a'), &[]).is_err());

        // What others add to the note does not hide a good statement.
        note = format!("junk\n{}\n{note}\n", signed(&payload, &other));
        let verified = verify(note.as_bytes(), &id('a'), &trusted(&key)).unwrap();
        assert_eq!(verified.len(), 1);
        assert_eq!(verified[0].signer.key, key.public());
    }

    #[test]
    fn a_changed_payload_or_type_is_refused() {
        let key = SigningKey::generate().unwrap();
        let good = signed(&serde_json::to_value(statement()).unwrap(), &key);
        let envelope: Value = serde_json::from_str(&good).unwrap();
        let cheaper = with("/predicate/costUsd", json!(0.0)).to_string();
        let replaced = [
            ("payload", json!(STANDARD.encode(cheaper))),
            ("payloadType", json!("text/plain")),
        ];
        for (field, value) in replaced {
            let mut changed = envelope.clone();
            changed[field] = value;
            let refused = verify(changed.to_string().as_bytes(), &id('a'), &trusted(&key));
            assert!(matches!(refused, Err(EvidenceRefusal::NotTrusted(_))), "{field}");
        }
        assert_eq!(
            verify(b"", &id('a'), &trusted(&key)),
            Err(EvidenceRefusal::NoEnvelope)
        );
        let other_type = Envelope::sign("text/plain", b"{}", &key);
        let note = serde_json::to_vec(&other_type).unwrap();
        assert_eq!(
            verify(&note, &id('a'), &trusted(&key)),
            Err(EvidenceRefusal::PayloadType("text/plain".to_owned()))
        );
    }

    #[test]
    fn a_note_that_was_moved_to_another_commit_is_refused() {
        let key = SigningKey::generate().unwrap();
        let note = signed(&serde_json::to_value(statement()).unwrap(), &key);
        assert_eq!(
            verify(note.as_bytes(), &id('c'), &trusted(&key)),
            Err(EvidenceRefusal::OtherCommit("a".repeat(40)))
        );
        let subject = |digit: char| json!({"name": "x", "digest": {"gitCommit": id(digit)}});
        for subjects in [json!([]), json!([subject('a'), subject('c')])] {
            let refused = verified(&with("/subject", subjects));
            assert!(
                matches!(refused, Err(EvidenceRefusal::OtherCommit(_))),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn other_statements_of_a_trusted_key_are_refused() {
        let later = json!("https://in-toto.io/Statement/v2");
        assert!(matches!(
            verified(&with("/_type", later)),
            Err(EvidenceRefusal::StatementType(_))
        ));
        let later = json!(PREDICATE.replace("v1", "v2"));
        assert!(matches!(
            verified(&with("/predicateType", later)),
            Err(EvidenceRefusal::PredicateType(_))
        ));
        assert!(matches!(
            verified(&with("/predicate", json!({}))),
            Err(EvidenceRefusal::Malformed(_))
        ));
        assert!(matches!(
            verified(&json!("text")),
            Err(EvidenceRefusal::Malformed(_))
        ));
    }
}
