//! Git: the user's repository, a run's private clone, and the way work comes back.
//!
//! A run never works in the user's repository. [`SeedPack`] packs what the base commit reaches,
//! [`PrivateClone::plant`] makes a clone of it inside the sandbox, [`PrivateClone::snapshot`] says what is in there
//! after each iteration. [`take`] brings it back: a bundle is made inside, checked in a quarantine repository and
//! only then are its objects added to the user's repository. [`Checkpoints`] keeps the run's state on
//! `refs/ralph/<run>/state`, and a [`Forge`] opens the pull request.
//!
//! The host runs git on the user's repository and on the quarantine alone; hooks, prompts, the network and everybody's
//! settings are off.
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

mod agent_settings;
mod branch;
pub mod bundle;
mod checkpoint;
mod clone;
mod diff;
mod entry;
mod error;
mod flag;
mod forge;
mod git;
mod handback;
mod history;
mod import;
mod local_forge;
mod mirror;
mod objects;
mod path;
mod quarantine;
mod repository;
mod secrets;
mod seed;
mod snapshot;
mod status;
mod worktree;

pub use agent_settings::agent_settings;
pub use branch::{branch_name, free_branch, slug};
pub use checkpoint::{Checkpoint, Checkpoints, Content, StateFile};
pub use clone::{Identity, IdentityError, PrivateClone, Start, trust_variables};
pub use diff::{Diff, FileChange, Lines};
pub use error::{Incomplete, Refusal, ScmError};
pub use flag::{Flag, FlagReason, flags_between};
pub use forge::{Forge, ForgeError, Opened, PullRequest, Readiness};
pub use handback::{DEFAULT_LIMIT, HandBack, NewCommit, Request, take};
pub use local_forge::LocalForge;
pub use mirror::DiffKind;
pub use path::{NameProblem, RepoPath};
pub use repository::{Expect, ObjectFormat, Repository, Warning};
pub use seed::SeedPack;
pub use snapshot::{Change, DirtyPath, Snapshot};
pub use status::Head;
pub use worktree::main_worktree;
