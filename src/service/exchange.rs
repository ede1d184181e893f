//! What a worker exchanges with the store while it drives a run, where processes on other hosts use the store too: requests of
//! people come in, events go out.
//!
//! The file of events is the buffer: this task reads what the run has written since. So the run never waits for the store, and
//! a store that was down gets everything later.

use std::convert::Infallible;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use crate::assembly::AssemblyError;
use crate::state::{Intervention, RunDir, StateError, if_exists};
use crate::store::{EventFile, LeaseState, QueueClaim, Store};
use crate::text::error_chain;

/// How often requests are looked for and events mirrored.
const INTERVAL: Duration = Duration::from_secs(1);

/// Events are mirrored together until they are so many, or have so many bytes. One event alone may have more. Renewals and
/// claims of the run wait for the transaction.
const BATCH_EVENTS: usize = 100;
const BATCH_BYTES: u64 = 1 << 20;

/// The exchange of one claimed run.
pub(super) struct Exchange<'a> {
    store: &'a Store,
    claim: &'a QueueClaim,
    dir: &'a RunDir,
    /// The file of events. The store knows it by its host and path.
    file: EventFile,
    /// Whether the store was asked how much of the file it has.
    is_positioned: bool,
    /// The number of the next event.
    next: u64,
}

impl<'a> Exchange<'a> {
    /// Mirrors what the store does not have of the events on this host, also those of a worker that was killed here.
    pub(super) fn new(store: &'a Store, claim: &'a QueueClaim, dir: &'a RunDir, host: &str) -> Self {
        Self {
            store,
            claim,
            dir,
            file: EventFile {
                name: format!("{host}:{}", dir.events_file().display()),
                mirrored: 0,
            },
            is_positioned: false,
            next: 1,
        }
    }

    /// Exchanges until it is dropped. A failure is tried again.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            if let Err(error) = self.move_requests().await {
                tracing::warn!(run = %self.claim.run, error = %error_chain(&error), "cannot move requests of people to the run");
            }
            self.mirror().await;
            sleep(INTERVAL).await;
        }
    }

    /// Mirrors what is left.
    pub(super) async fn mirror(&mut self) {
        if let Err(error) = self.try_mirror().await {
            tracing::warn!(run = %self.claim.run, error = %error_chain(&error), "cannot mirror events; trying again");
        }
    }

    async fn try_mirror(&mut self) -> Result<(), AssemblyError> {
        let path = self.dir.events_file();
        if !self.is_positioned {
            let length = std::fs::metadata(&path).map_or(0, |file| file.len());
            let mirrored = self
                .store
                .mirrored_events(&self.claim.run, &self.file.name)
                .await?;
            // A shorter file is another one: the directory of the run was removed meanwhile.
            self.file.mirrored = if mirrored > length { 0 } else { mirrored };
            self.is_positioned = true;
        }
        while let Some(lines) =
            read_lines(&path, self.file.mirrored).map_err(StateError::io("read", &path))?
        {
            let after = EventFile {
                mirrored: self.file.mirrored + lines.bytes,
                ..self.file.clone()
            };
            let added = self
                .store
                .add_events(self.claim, self.next, &lines.events, &after);
            if added.await? == LeaseState::Lost {
                return Ok(());
            }
            self.next += lines.events.len() as u64;
            self.file = after;
        }
        Ok(())
    }

    /// A request is in the run's own inbox before it is marked. The run carries each id out once, so one that is moved twice is
    /// done once. That is why requests that went to an earlier worker come again: its host may be gone with them. Not so
    /// orders that end an iteration, which were followed at once.
    async fn move_requests(&self) -> Result<(), AssemblyError> {
        for request in self.store.interventions_for(self.claim).await? {
            // A run that was stopped is not claimed again, so a stop that comes here once more was not followed.
            let is_of_its_iteration = matches!(request.asked.intervention, Intervention::Rotate);
            if !(request.was_moved && is_of_its_iteration) {
                self.dir.inbox().leave(&request.asked)?;
            }
            self.store
                .intervention_moved(self.claim, &request.asked.id)
                .await?;
        }
        Ok(())
    }
}

/// Whole lines of a file.
struct EventLines {
    events: Vec<String>,
    bytes: u64,
}

/// The next whole lines after this many bytes. `None` if there are none yet.
fn read_lines(path: &Path, from: u64) -> std::io::Result<Option<EventLines>> {
    let Some(mut file) = if_exists(File::open(path))? else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::new(file);
    let mut lines = EventLines {
        events: Vec::new(),
        bytes: 0,
    };
    let mut line = Vec::new();
    while lines.events.len() < BATCH_EVENTS && lines.bytes < BATCH_BYTES {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        // The last line may not be whole yet.
        if line.pop() != Some(b'\n') {
            break;
        }
        lines.events.push(String::from_utf8_lossy(&line).into_owned());
        lines.bytes += read as u64;
    }
    Ok((lines.bytes > 0).then_some(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_read_however_long_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let long = "x".repeat(3 << 20);
        std::fs::write(&path, format!("short\n{long}\nshort\nhalf")).unwrap();
        let (mut from, mut read) = (0, Vec::new());
        while let Some(lines) = read_lines(&path, from).unwrap() {
            from += lines.bytes;
            read.extend(lines.events);
        }
        assert_eq!(read, ["short", &long, "short"]);
    }

    #[test]
    fn many_lines_are_read_in_batches() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, "{}\n".repeat(250)).unwrap();
        let (mut from, mut batches) = (0, Vec::new());
        while let Some(lines) = read_lines(&path, from).unwrap() {
            from += lines.bytes;
            batches.push(lines.events.len());
        }
        assert_eq!(batches, [100, 100, 50]);
    }
}
