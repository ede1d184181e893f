//! Signed evidence: what ralph ran on a commit, as a statement that the host signs.
//!
//! An [`EvidenceStatement`] is an in-toto statement whose subject is one commit. A [`SigningKey`], the Ed25519 key of the
//! host, signs it as a DSSE [`Envelope`]. [`attach`] keeps the envelope in a git note of the commit ([`NOTES_REF`]), one line
//! of JSON per envelope. [`verify`] accepts a statement only if a key that the caller trusts signed it. A key that comes
//! with the note proves nothing, and [`keys_on_base`] reads keys from the base branch only.

mod base_keys;
mod envelope;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod key;
mod note;
mod statement;

pub use base_keys::{BaseKeys, keys_on_base};
pub use envelope::{Envelope, EnvelopeSignature};
pub use error::{EvidenceKeyError, EvidenceRefusal};
pub use key::{SigningKey, VerifyingKey};
pub use note::{AttachError, NOTES_REF, TrustedKey, VerifiedStatement, attach, envelopes, read_note, verify};
pub use statement::{
    EvidenceAgent, EvidenceCommand, EvidenceImage, EvidencePredicate, EvidenceStatement, EvidenceSubject,
    PAYLOAD_TYPE, PREDICATE_TYPE, PolicyDigest, STATEMENT_TYPE, SubjectDigest,
};
