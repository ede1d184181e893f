//! Git: the user's repository, a run's private clone, the hand-back of work, and pull requests.
//!
//! A run never works in the user's repository. [`SeedPack`] packs what the base commit reaches,
//! [`PrivateClone::create`] clones it inside the sandbox, and [`PrivateClone::snapshot`] records its content after each
//! iteration. [`hand_back`] creates a bundle inside the sandbox, checks it in a quarantine repository, and only then adds
//! its objects to the user's repository. [`Checkpoints`] saves the run's state on `refs/ralph/<run>/state`, and a
//! [`Forge`] opens the pull request.
//!
//! The host runs git only on the user's repository and on the quarantine repository, without hooks, prompts, network and
//! the user's settings.
//!
//! ```no_run
//! use ralph::{Repository, Surroundings};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Surroundings::from_process()?.host();
//! let repository = Repository::open(host, "path/to/repository".as_ref()).await?;
//! println!("{}", repository.resolve("HEAD").await?);
//! # Ok(())
//! # }
//! ```

mod base;
mod branch;
pub mod bundle;
mod checkpoint;
mod clone;
mod diff;
mod entry;
mod error;
mod flag;
mod forge;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod git;
mod handback;
mod history;
mod import;
mod local_forge;
mod mirror;
mod notes;
mod objects;
mod path;
mod pull_review;
mod push;
mod push_note;
mod quarantine;
mod ref_move;
mod repository;
mod scratch;
mod secrets;
mod seed;
mod snapshot;
mod state_remote;
mod status;
mod text_change;
mod worktree;

pub use branch::{branch_name, free_branch, is_version, release_branch, reserve_branch, slug};
pub use checkpoint::{Checkpoint, CheckpointContent, Checkpoints, StateFile};
pub use clone::{CloneStart, CommitIdentity, CommitIdentityError, PrivateClone, trust_variables};
pub use diff::{Diff, FileChange, LineCount, changed_files};
pub use error::{HandBackRefusal, ScmError};
pub use flag::{ChangeFlag, EVIDENCE_KEYS_DIR, agent_settings, flags_between};
pub use forge::{
    CiFailure, CiReport, CommitState, CommitStatus, Forge, ForgeError, OpenedPullRequest, PlannedPullRequest,
    PullRequest, PullRequestBase, PullRequestOverlap,
};
pub use handback::{DEFAULT_BUNDLE_LIMIT, HandBack, HandBackRequest, hand_back};
pub use local_forge::LocalForge;
pub use mirror::ShownDiff;
pub use path::{NameProblem, RepoPath};
pub use pull_review::{ReviewAnswer, ReviewComment, ReviewPlace};
pub use push::Remote;
pub use push_note::NotePush;
pub use ref_move::RefMove;
pub use repository::{ObjectFormat, Repository};
pub use scratch::ScratchRepository;
pub use seed::SeedPack;
pub use snapshot::{DirtyPath, LargeFile, PathChange, Snapshot};
pub use state_remote::StateRemote;
pub use text_change::{TextChange, text_changes, texts_at};
pub use worktree::main_worktree;
