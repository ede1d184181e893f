//! What a worker exchanges with the store while it drives a run, where processes on other hosts use the store too: requests of
//! people come in, events go out.
//!
//! The file of events is the buffer: this task reads what the run has written since. So the run never waits for the store, and
//! a store that was down gets everything later.

use std::convert::Infallible;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use crate::assembly::AssemblyError;
use crate::state::RunDir;
use crate::store::{QueueClaim, Store};

/// How often requests are looked for and events mirrored.
const INTERVAL: Duration = Duration::from_secs(1);

/// The most bytes of events in one statement.
const MOST_BYTES: u64 = 1 << 20;

/// The exchange of one claimed run.
pub(super) struct Exchange<'a> {
    store: &'a Store,
    claim: &'a QueueClaim,
    dir: &'a RunDir,
    /// How much of the file of events is mirrored, in bytes.
    mirrored: u64,
    /// The number of the next event.
    next: u64,
}

impl<'a> Exchange<'a> {
    /// Mirrors events that come after this moment.
    pub(super) fn new(store: &'a Store, claim: &'a QueueClaim, dir: &'a RunDir) -> Self {
        let mirrored = std::fs::metadata(dir.events_file()).map_or(0, |file| file.len());
        Self {
            store,
            claim,
            dir,
            mirrored,
            next: 1,
        }
    }

    /// Exchanges until it is dropped. A failure is tried again.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            if let Err(error) = self.move_requests().await {
                tracing::warn!(run = %self.claim.run, %error, "cannot move requests of people to the run");
            }
            self.mirror().await;
            sleep(INTERVAL).await;
        }
    }

    /// Mirrors what is left.
    pub(super) async fn mirror(&mut self) {
        while let Ok(Some(lines)) = read_lines(&self.dir.events_file(), self.mirrored) {
            if let Err(error) = self.store.add_events(self.claim, self.next, &lines.events).await {
                tracing::warn!(run = %self.claim.run, %error, "cannot mirror events; trying again");
                return;
            }
            self.mirrored += lines.bytes;
            self.next += lines.events.len() as u64;
        }
    }

    /// A request is in the run's own inbox before it is marked. The run carries each id out once, so one that is moved twice is
    /// done once.
    async fn move_requests(&self) -> Result<(), AssemblyError> {
        for request in self.store.waiting_interventions(&self.claim.run).await? {
            self.dir.inbox().leave(&request)?;
            self.store.intervention_moved(&request.id).await?;
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
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes[..end]);
    Ok(Some(EventLines {
        events: text.lines().map(str::to_owned).collect(),
        bytes: end as u64 + 1,
    }))
}
