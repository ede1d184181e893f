//! Runs coding agents unattended, in a loop, inside a sandbox, and hands back a pull request.
//!
//! # The story
//!
//! A **task** is a file, `ralph_task.md`: a few settings, some prose, and checkboxes with the shell lines that verify
//! them ([`task`]). [`create`] makes a **run** of it: a directory on the host ([`state`]), a branch name and the commit
//! to start from. [`drive`] works on that run until it is done, failed, paused or stopped, and goes on with one that
//! was interrupted.
//!
//! A run is a row of **iterations**. Each begins with a fresh context: a prompt made from files and git, nothing else.
//! The agent works in a private clone inside a **sandbox**. When it is through, its processes are ended, its commits
//! come back as a bundle and are checked ([`scm`]), and the runner gathers **evidence**: in a clean checkout of the
//! last commit it runs the task's own commands. What the agent claims decides what is checked, never what is true. When
//! every checkbox is verified and the tests pass, a [`Forge`] opens the **pull request**.
//!
//! After each iteration everything is in one commit under `refs/ralph/<run>/state` in the user's repository. That, and
//! a journal on the host, is all that a resume needs.
//!
//! # The seams
//!
//! - [`Provider`] makes sandboxes, [`Sandbox`] is one that lives. [`sandbox::local`] is the one of this version; it
//!   isolates nothing but a directory.
//! - [`Agent`] opens a [`AgentSession`] for each iteration: a state machine without any I/O. It is asked what to do next
//!   ([`agent::AgentStep`]: ask the model, run a command, perform actions, finish) and given the result.
//!   [`agent::actions`] is the built-in one: a plain model that answers JSON actions. [`agent::ProgramAgent`] is one that
//!   is a program: [`agent::Claude`], [`agent::Codex`], or a [`agent::AgentProgram`] of one's own.
//! - [`Model`] answers. [`model::OpenAiCompatible`] calls LiteLLM or anything that speaks the same language,
//!   [`model::ScriptedModel`] answers from a file.
//! - [`EventSink`] receives everything a run reports, as [`Event`]s. The library prints nothing.
//! - [`Forge`] opens the pull request. [`scm::LocalForge`] is a branch and a file in the user's own hands.
//!
//! Nothing below `cli` reads the environment, the home folder or the clock by itself: they are passed in, as [`RunParts`].
//!
//! # A whole run
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use ralph::agent::Agents;
//! use ralph::agent::actions::ActionsAgent;
//! use ralph::event::NullSink;
//! use ralph::exec::Host;
//! use ralph::model::{CallTimeouts, ModelEndpoint, OpenAiCompatible, Profile};
//! use ralph::sandbox::connect::{Choice, connect};
//! use ralph::sandbox::local::LocalOptions;
//! use ralph::scm::LocalForge;
//! use ralph::secret::{Redactor, Secret};
//! use ralph::state::RunOwner;
//! use ralph::{NewRun, RunParts, Repository, Runs, SandboxSpec, RunSettings};
//!
//! # async fn run(task: String, key: String) -> Result<(), Box<dyn std::error::Error>> {
//! let path = "/usr/bin:/bin";
//! let host = Host::new(BTreeMap::from([("PATH".to_owned(), path.to_owned())]));
//! let repo = Repository::open(host.clone(), "path/to/your/repository".as_ref()).await?;
//! let runs = Runs::under("path/to/the/runs");
//! let key = Secret::new(key);
//! let redactor = Redactor::new([key.clone()]);
//!
//! let new = NewRun { created: jiff::Timestamp::now(), task, branch_prefix: "ralph".to_owned(), project: None, overrides: Vec::new(), script: None };
//! let run = ralph::create(&runs, &repo, &redactor, new).await?;
//!
//! let local = LocalOptions {
//!     base: runs.dir().to_owned(),
//!     path: path.to_owned(),
//!     passthrough: BTreeMap::new(),
//! };
//! let endpoint = ModelEndpoint::parse("http://127.0.0.1:4000")?;
//! let parts = RunParts {
//!     provider: connect(&Choice::Local(local))?,
//!     agents: Agents::new(Arc::new(ActionsAgent)),
//!     model: Arc::new(OpenAiCompatible::new(endpoint, Some(key), CallTimeouts::default())?),
//!     forge: Arc::new(LocalForge::new(repo, run.pull_request_file())),
//!     sink: Arc::new(NullSink),
//!     clock: ralph::clock::system(),
//!     host,
//!     redactor,
//!     owner: RunOwner::this_process("the name of this machine"),
//!     metering: None,
//!     preconditions: Vec::new(),
//! };
//! let settings = RunSettings::new(Profile::new("default", "zai/glm-4.7"));
//! let spec = SandboxSpec::unrestricted(run.facts().id.clone());
//! let outcome = ralph::drive(&parts, &settings, &spec, &run).await?;
//! assert!(outcome.pull_request.is_some(), "{}", outcome.reason);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/` holds four whole programs that run as they are: a loop driven by the library, and a provider, an agent
//! and an event sink of one's own. `docs/guide/sdk.md` walks through them.
//!
//! # Features
//!
//! `cli` (on by default) adds the command line and the configuration files: `cli` and `config`. Without it the crate is
//! the loop alone.

pub mod agent;
pub mod assembly;
mod atomic_file;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod config;
pub mod credential;
pub mod digest;
pub mod engine;
pub mod event;
pub mod exec;
mod file_hashes;
pub mod gateway;
pub mod guest;
pub mod id;
pub mod image;
pub mod model;
pub mod network;
pub mod nix;
pub mod runner;
pub mod sandbox;
pub mod scm;
pub mod secret;
pub mod state;
pub mod task;
mod text;
pub mod usage;

pub use agent::{Agent, AgentSession};
pub use event::{Event, EventKind, EventSink};
pub use id::RunId;
pub use model::{Model, Profile};
pub use runner::{NewRun, RunOutcome, RunParts, RunSettings, create, drive};
pub use sandbox::{Provider, Sandbox, SandboxSpec};
pub use scm::{Forge, Repository};
pub use state::{RunDir, Runs};
