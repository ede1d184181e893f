//! The disk usage of a workspace in a volume, measured by commands in its container.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::super::container::ROOT;
use super::super::exec::ContainerCommands;
use super::free_space::engine_shortage;
use super::{PAUSE_FACTOR, container_size, excess};
use crate::engine::EngineError;
use crate::text::error_chain;

/// The pause between two checks. Each starts commands in the container.
const PAUSE: Duration = Duration::from_secs(5);
/// After so many failures in a row the command is ended.
const MAX_FAILURES: u32 = 3;

/// Prints the line of `df` for the directory $1 and, with a second argument, its size in kilobytes. The agent can hide files
/// from itself, and so from `du`: what is free counts all of them.
const MEASURE: &str = "df -Pk -- \"$1\" | tail -n 1; [ -z \"$2\" ] || du -skx -- \"$1\" 2>/dev/null";

/// When a workspace was measured last, also by an earlier command.
#[derive(Debug, Default)]
pub(super) struct VolumeChecks {
    next: Mutex<Option<Instant>>,
}

impl VolumeChecks {
    /// Returns a reason once the sandbox exceeds its limit, the disk of its workspace is almost full, or neither can be measured.
    pub(super) async fn exceeded(&self, container: &ContainerCommands, limit: Option<u64>) -> String {
        let mut failures = 0;
        loop {
            let next = *self.next.lock().await;
            if let Some(next) = next {
                sleep_until(next).await;
            }
            let began = Instant::now();
            match problem(container, limit).await {
                Ok(Some(reason)) => return reason,
                Ok(None) => failures = 0,
                // One failure may have another reason, such as a container that was just stopped.
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), container = container.container, "cannot measure the size of a workspace");
                    failures += 1;
                }
            }
            if failures == MAX_FAILURES {
                return "its use of the disk cannot be measured".to_owned();
            }
            *self.next.lock().await = Some(Instant::now() + PAUSE.max(began.elapsed() * PAUSE_FACTOR));
        }
    }
}

async fn problem(container: &ContainerCommands, limit: Option<u64>) -> Result<Option<String>, EngineError> {
    let wanted = if limit.is_some() { "size" } else { "" };
    let measured = container.script_output(MEASURE, &[ROOT, wanted]).await?;
    let invalid = || EngineError::invalid_response("the size of a workspace", &measured.output);
    let Measured { disk, free, size } = parse(&measured.output).ok_or_else(invalid)?;
    if let Some(reason) = engine_shortage(free, disk) {
        return Ok(Some(reason));
    }
    let Some(limit) = limit else {
        return Ok(None);
    };
    let size = size.ok_or_else(invalid)? + container_size(container).await;
    Ok((size > limit).then(|| excess(size, limit)))
}

/// What was measured, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Measured {
    /// The size of the disk.
    disk: u64,
    /// What is free of it.
    free: u64,
    /// The size of the workspace, if it was asked for.
    size: Option<u64>,
}

fn parse(output: &str) -> Option<Measured> {
    let bytes = |text: &str| text.parse::<u64>().ok().map(|kilobytes| kilobytes << 10);
    let mut lines = output.lines();
    // The name of the file system may contain blanks. After it: all, used, free, a percentage, the directory.
    let mut columns = lines.next()?.split_ascii_whitespace().rev().skip(2);
    let free = bytes(columns.next()?)?;
    let disk = bytes(columns.nth(1)?)?;
    let size = match lines.next() {
        Some(line) => Some(bytes(line.split_ascii_whitespace().next()?)?),
        None => None,
    };
    Some(Measured { disk, free, size })
}

#[cfg(test)]
mod tests {
    use super::{Measured, parse};

    #[test]
    fn what_df_and_du_print_is_read() {
        let line = "a disk 102400 2048 100352 3% /workspace\n";
        let measured = |size| {
            Some(Measured {
                disk: 102_400 << 10,
                free: 100_352 << 10,
                size,
            })
        };
        assert_eq!(parse(line), measured(None));
        assert_eq!(
            parse(&format!("{line}2048\t/workspace\n")),
            measured(Some(2048 << 10))
        );
        assert_eq!(parse("sh: df: not found\n"), None);
    }
}
