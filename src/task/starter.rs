//! The files that `ralph init` writes and that a run's state begins with.

/// `ralph_task.md`: an example that explains itself.
pub const TASK: &str = include_str!("../../templates/starter/ralph_task.md");

/// `.ralph/guardrails.md`: the signs, to which entries are only ever added.
pub const GUARDRAILS: &str = include_str!("../../templates/starter/guardrails.md");

/// `.ralph/progress.md`: what is done and what comes next.
pub const PROGRESS: &str = include_str!("../../templates/starter/progress.md");

/// `.ralph/notes.md`: what a person tells the agent.
pub const NOTES: &str = include_str!("../../templates/starter/notes.md");

/// `.ralph/diagnostics.md`: what the doctor found.
pub const DIAGNOSTICS: &str = include_str!("../../templates/starter/diagnostics.md");

/// `.ralph/errors.log`: empty, because every line of it is an entry.
pub const ERRORS_LOG: &str = include_str!("../../templates/starter/errors.log");

/// `.ralph/activity.log`: empty, because every line of it is an entry.
pub const ACTIVITY_LOG: &str = include_str!("../../templates/starter/activity.log");

/// `ralph.toml`: the settings people change first.
pub const CONFIG: &str = include_str!("../../templates/starter/ralph.toml");
