//! Runs coding agents unattended, in a loop, inside a sandbox, and opens a pull request with the result.
//!
//! # A whole run
//!
//! A repository and a task are enough. [`Ralph::builder`] has the defaults of the command line: it reads the configuration
//! files of the repository and of the user, and the environment of the process.
//!
//! ```no_run
//! use ralph::{Claude, Docker, Ralph};
//!
//! # async fn example() -> Result<(), ralph::AssemblyError> {
//! let outcome = Ralph::builder()
//!     .repository(".")
//!     .task_file("ralph_task.md")
//!     .sandbox(Docker::new().allow(["crates.io"]))
//!     .agent(Claude::new())
//!     .build()
//!     .await?
//!     .run()
//!     .await?;
//! println!("{:?}: {}", outcome.kind, outcome.reason);
//! # Ok(())
//! # }
//! ```
//!
//! `build` refuses everything that can be refused before a run exists; `run` creates the run and works on it. The library
//! prints nothing: events go to an [`EventSink`], warnings to an [`AssemblyReporter`]. Environment, directories and clock
//! are [`Surroundings`], which can be replaced.
//!
//! # How a run works
//!
//! A **task** is a file, `ralph_task.md`: some settings, some prose, and checkboxes with the commands that verify them
//! ([`task`]). A **run** works on one task: it has a directory on the host ([`RunDir`]), a private clone, a branch and a
//! sandbox.
//!
//! A run consists of **iterations**. Each starts with a fresh context: a prompt made from files and git, nothing else. At
//! the end of an iteration the agent's processes are ended, and its commits leave the sandbox as a bundle and are checked
//! ([`scm`]). Then the runner collects **evidence**: it runs the task's own commands in a clean checkout of the last
//! commit. The agent reports checkboxes as finished; only evidence ticks them. When every checkbox is verified and the
//! tests pass, a [`Forge`] opens the **pull request**.
//!
//! After each iteration the whole state is one commit under `refs/ralph/<run>/state` in the user's repository. That commit
//! and a journal on the host are all that a resume needs.
//!
//! # What can be replaced
//!
//! - [`Provider`] creates sandboxes, [`Sandbox`] is one of them ([`sandbox`]). There are `docker`, `docker-sandbox`,
//!   `tart`, `daytona`, and `local`, which isolates nothing.
//! - [`Agent`] opens an [`AgentSession`] for each iteration ([`agent`]). A session is a state machine without I/O: it
//!   returns the next step and gets its result. [`agent::actions`] is built in; `claude`, `codex` and others are programs.
//! - [`Model`] answers the built-in agent ([`model`]): an OpenAI-compatible endpoint, or a script.
//! - [`EventSink`] receives everything that a run reports ([`event`]).
//! - [`Forge`] opens the pull request ([`scm`]).
//!
//! `examples/` holds whole programs, and `docs/guide/sdk.md` walks through them.
//!
//! # Features
//!
//! `cli` (on by default) adds the command line. `store`, which is part of it, adds the index of runs and the queue
//! in SQLite or Postgres. `serve`, also part of it, adds the API. Everything else works without them.

pub mod agent;
#[cfg(feature = "serve")]
pub mod api;
#[cfg_attr(
    not(feature = "cli"),
    allow(dead_code, unused_imports, reason = "the command line uses all of it")
)]
pub mod assembly;
mod atomic_file;
#[doc(hidden)]
pub mod chart;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod clock;
pub mod config;
#[doc(hidden)]
pub mod credential;
#[cfg(feature = "serve")]
pub mod dashboard;
#[doc(hidden)]
pub mod digest;
#[doc(hidden)]
pub mod engine;
pub mod event;
pub mod evidence;
pub mod exec;
#[doc(hidden)]
pub mod failure;
mod file_hashes;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod gateway;
pub mod github;
#[doc(hidden)]
pub mod guest;
#[doc(hidden)]
pub mod id;
pub mod image;
pub mod metrics;
pub mod model;
pub mod network;
#[doc(hidden)]
pub mod nix;
#[doc(hidden)]
pub mod notify;
#[doc(hidden)]
pub mod otlp;
#[doc(hidden)]
pub mod runner;
pub mod sandbox;
pub mod scm;
#[doc(hidden)]
pub mod secret;
#[cfg_attr(
    not(feature = "cli"),
    allow(dead_code, unused_imports, reason = "the command line uses all of it")
)]
mod service;
#[doc(hidden)]
pub mod state;
#[cfg(feature = "store")]
pub mod store;
pub mod task;
mod text;
#[doc(hidden)]
pub mod usage;

pub use agent::{Agent, AgentSession, Claude, Codex};
pub use assembly::{
    ActiveRun, AgentChoice, AssemblyError, AssemblyErrorKind, AssemblyReporter, Docker, Local, Ralph,
    RalphBuilder, RunControl, SandboxChoice, Surroundings,
};
pub use clock::Clock;
pub use config::Config;
pub use event::{Event, EventKind, EventSink};
pub use id::RunId;
pub use model::{Model, Profile};
pub use runner::{NewRun, RunOutcome, RunParts, RunSettings, create, drive};
pub use sandbox::{Provider, Sandbox, SandboxSpec};
pub use scm::{Forge, Repository};
pub use secret::{Redactor, Secret};
pub use state::{RunDir, RunOutcomeKind, Runs};
