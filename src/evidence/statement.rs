//! The statement that is signed: an in-toto statement (<https://in-toto.io/Statement/v1>) about one commit.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::EvidenceRefusal;
use crate::digest::Digest;
use crate::id::ObjectId;
use crate::usage::Tokens;

/// The payload type of an envelope with a statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The type of a statement.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The type of the predicate, with its version.
pub const PREDICATE_TYPE: &str = "https://github.com/ralph/ralph/evidence/v1";

/// An in-toto statement about one commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceStatement {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub statement_type: String,
    /// The commit, and nothing else.
    pub subject: Vec<EvidenceSubject>,
    /// [`PREDICATE_TYPE`].
    pub predicate_type: String,
    /// What is stated.
    pub predicate: EvidencePredicate,
}

/// What a statement is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceSubject {
    /// The branch of the run, for people.
    pub name: String,
    /// The commit.
    pub digest: SubjectDigest,
}

/// The commit as in-toto names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectDigest {
    /// The id of the commit.
    pub git_commit: ObjectId,
}

/// How the evidence for a commit was gathered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvidencePredicate {
    /// The version of ralph that signed.
    pub ralph: String,
    /// The id of the task.
    pub task: String,
    /// The id of the run.
    pub run: String,
    /// The commit that the run started from.
    pub base: ObjectId,
    /// The commands, each once.
    pub commands: Vec<EvidenceCommand>,
    /// Whether they ran in a sandbox of their own, to which the agent had no access.
    pub apart: bool,
    /// What they shared with the agent, for people.
    pub shared: Vec<String>,
    /// The provider of the sandbox.
    pub provider: String,
    /// The image of the sandbox; `None` if it has none.
    pub image: Option<EvidenceImage>,
    /// The network policy.
    pub network: PolicyDigest,
    /// The agents that worked on the run, and their models.
    pub agents: Vec<EvidenceAgent>,
    /// The tokens of the run.
    pub tokens: Tokens,
    /// The cost of the run in US dollars; `None` if it is unknown.
    pub cost_usd: Option<f64>,
}

/// A command that ralph itself ran on a clean checkout, with its last result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceCommand {
    /// The shell command.
    pub command: String,
    /// Its exit code, as a shell reports it.
    pub exit: i32,
    /// When it started; `None` if an older ralph recorded it.
    pub started: Option<Timestamp>,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// The commit that was checked out.
    pub commit: Option<ObjectId>,
    /// How often it ran, in a row.
    pub runs: u32,
}

/// The image of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceImage {
    /// Its name.
    pub name: String,
    /// Its digest; `None` if the provider does not know it.
    pub digest: Option<String>,
}

/// A network policy by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyDigest {
    /// What it does with names that no rule is about.
    pub mode: String,
    /// The digest of its mode and rules.
    pub digest: Digest,
}

/// An agent and its model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceAgent {
    /// The agent.
    pub name: String,
    /// The model.
    pub model: String,
}

impl EvidenceStatement {
    /// A statement about this commit of this branch.
    #[must_use]
    pub fn new(commit: ObjectId, branch: &str, predicate: EvidencePredicate) -> Self {
        Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject: vec![EvidenceSubject {
                name: branch.to_owned(),
                digest: SubjectDigest { git_commit: commit },
            }],
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate,
        }
    }

    /// Reads a payload. Other statements and predicates, and other versions of them, are refused.
    pub fn parse(payload_type: &str, payload: &[u8]) -> Result<Self, EvidenceRefusal> {
        /// The parts that say what the rest means.
        #[derive(Deserialize)]
        struct Types {
            #[serde(rename = "_type", default)]
            statement: String,
            #[serde(rename = "predicateType", default)]
            predicate: String,
        }
        let malformed = |error: serde_json::Error| EvidenceRefusal::Malformed(error.to_string());
        if payload_type != PAYLOAD_TYPE {
            return Err(EvidenceRefusal::PayloadType(payload_type.to_owned()));
        }
        let types: Types = serde_json::from_slice(payload).map_err(malformed)?;
        if types.statement != STATEMENT_TYPE {
            return Err(EvidenceRefusal::StatementType(types.statement));
        }
        if types.predicate != PREDICATE_TYPE {
            return Err(EvidenceRefusal::PredicateType(types.predicate));
        }
        serde_json::from_slice(payload).map_err(malformed)
    }

    /// Whether it is about this commit, and nothing else.
    pub(super) fn check_subject(&self, commit: &ObjectId) -> Result<(), EvidenceRefusal> {
        match self.subject.as_slice() {
            [only] if only.digest.git_commit == *commit => Ok(()),
            subjects => {
                let named: Vec<&str> = subjects
                    .iter()
                    .map(|subject| subject.digest.git_commit.as_str())
                    .collect();
                let named = if named.is_empty() { vec!["nothing"] } else { named };
                Err(EvidenceRefusal::OtherCommit(named.join(", ")))
            }
        }
    }
}
