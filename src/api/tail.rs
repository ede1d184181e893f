//! Events of runs, read from their logs.
//!
//! The id of an event is the number of bytes up to the end of its line in `events.jsonl`. It grows, it survives restarts of
//! run and service, and a reader continues after it without a search: there is no gap and no double.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, watch};

use crate::id::RunId;
use crate::state::{if_exists, whole_length};
use crate::text::error_chain;

use super::watched_log::WatchedLog;

/// How often the log of a run that someone watches is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// How many bytes of newest events are kept for all readers of a run.
const RECENT_BYTES: usize = 256 * 1024;

/// How many bytes of events are read at once, if no single event is longer.
pub(super) const BATCH_BYTES: usize = 32 * 1024;

/// One event as it is sent: `{"run": .., "id": .., "event": ..}`. Clones share the text.
#[derive(Clone, Debug)]
pub(super) struct EventFrame {
    pub(super) id: u64,
    pub(super) text: Utf8Bytes,
}

/// Reads events after an id: whole lines, about [`BATCH_BYTES`] of them, at most `limit`. Returns them and the id to go on
/// with, which is that of the last line, also if that line is not JSON and was left out.
pub(super) fn read_events(log: &WatchedLog, after: u64, limit: usize) -> io::Result<(Vec<EventFrame>, u64)> {
    let Some(mut file) = if_exists(File::open(&log.path))? else {
        return Ok((Vec::new(), after));
    };
    file.seek(SeekFrom::Start(after))?;
    let mut reader = BufReader::new(file);
    let (mut frames, mut id, mut line) = (Vec::new(), after, Vec::new());
    while frames.len() < limit && id - after < BATCH_BYTES as u64 {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        id += length as u64;
        if let Ok(event) = serde_json::from_slice::<&RawValue>(&line) {
            let text = format!("{{\"run\":\"{}\",\"id\":{id},\"event\":{event}}}", log.run);
            let text = text.into();
            frames.push(EventFrame { id, text });
        }
    }
    Ok((frames, id))
}

/// Whether an id is one of the run: 0, or the end of a line of its log.
pub(super) fn is_event_id(log: &WatchedLog, id: u64) -> io::Result<bool> {
    let Some(before) = id.checked_sub(1) else {
        return Ok(true);
    };
    let Some(mut file) = if_exists(File::open(&log.path))? else {
        return Ok(false);
    };
    if id > file.metadata()?.len() {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(before))?;
    let mut byte = [0];
    Ok(io::Read::read(&mut file, &mut byte)? == 1 && byte == *b"\n")
}

/// How many clients that are behind read from logs at the same time. Each read is short, and has a thread with memory of its own.
const READS_AT_ONCE: usize = 4;

/// The logs that are watched, each once for all clients.
pub(super) struct Tails {
    watched: Mutex<HashMap<PathBuf, Weak<Tail>>>,
    reads: Arc<Semaphore>,
}

impl Default for Tails {
    fn default() -> Self {
        Self {
            watched: Mutex::default(),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }
}

impl Tails {
    /// The tail of a log, which is followed until the last client drops it.
    pub(super) fn open(&self, log: WatchedLog) -> io::Result<Arc<Tail>> {
        let mut tails = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = tails.get(&log.path).and_then(Weak::upgrade) {
            return Ok(tail);
        }
        tails.retain(|_, tail| tail.strong_count() > 0);
        let end = log_end(&log.path)?;
        let tail = Arc::new(Tail {
            recent: Mutex::new(RecentEvents {
                after: end,
                frames: VecDeque::new(),
                bytes: 0,
            }),
            end: watch::Sender::new(end),
            log,
            reads: self.reads.clone(),
        });
        tails.insert(tail.log.path.clone(), Arc::downgrade(&tail));
        tokio::spawn(follow(Arc::downgrade(&tail)));
        Ok(tail)
    }
}

/// The id of the newest whole line.
fn log_end(path: &PathBuf) -> io::Result<u64> {
    let Some(mut file) = if_exists(File::open(path))? else {
        return Ok(0);
    };
    let length = file.metadata()?.len();
    whole_length(&mut file, length)
}

/// The newest events of a run. Each is read and put into its frame once.
pub(super) struct Tail {
    log: WatchedLog,
    recent: Mutex<RecentEvents>,
    end: watch::Sender<u64>,
    /// Those of all logs.
    reads: Arc<Semaphore>,
}

struct RecentEvents {
    /// The id before the first frame.
    after: u64,
    frames: VecDeque<EventFrame>,
    bytes: usize,
}

impl Tail {
    pub(super) fn run(&self) -> &RunId {
        &self.log.run
    }

    /// The id of the newest event.
    pub(super) fn end(&self) -> u64 {
        *self.end.borrow()
    }

    /// Waits until there are events after this id.
    pub(super) async fn wait(&self, after: u64) {
        let mut end = self.end.subscribe();
        // The sender lives as long as this tail.
        let _ = end.wait_for(|end| *end > after).await;
    }

    /// A batch of the events after this id, with the id to go on with.
    pub(super) async fn read(self: &Arc<Self>, after: u64) -> io::Result<(Vec<EventFrame>, u64)> {
        if let Some(recent) = self.recent_after(after) {
            return Ok(recent);
        }
        let _turn = self.reads.acquire().await.map_err(io::Error::other)?;
        let tail = self.clone();
        let read = tokio::task::spawn_blocking(move || read_events(&tail.log, after, usize::MAX));
        read.await.map_err(io::Error::other)?
    }

    /// A batch from memory; `None` if it has to be read from the log.
    fn recent_after(&self, after: u64) -> Option<(Vec<EventFrame>, u64)> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if after < recent.after {
            return None;
        }
        let first = recent.frames.partition_point(|frame| frame.id <= after);
        let mut bytes = 0;
        let fits = |frame: &&EventFrame| {
            let fits = bytes < BATCH_BYTES;
            bytes += frame.text.len();
            fits
        };
        let frames: Vec<EventFrame> = recent.frames.range(first..).take_while(fits).cloned().collect();
        let last = frames.last()?.id;
        Some((frames, last))
    }

    /// Reads what was added to the log. A stat and a short read of a local file, so it may run on a thread of the runtime.
    fn advance(&self) -> io::Result<()> {
        let length = match if_exists(std::fs::metadata(&self.log.path))? {
            Some(file) => file.len(),
            None => 0,
        };
        while length > self.end() {
            let (frames, end) = read_events(&self.log, self.end(), usize::MAX)?;
            if end == self.end() {
                break;
            }
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.add(frames);
            self.end.send_replace(end);
        }
        Ok(())
    }
}

impl RecentEvents {
    fn add(&mut self, frames: Vec<EventFrame>) {
        for frame in frames {
            self.bytes += frame.text.len();
            self.frames.push_back(frame);
        }
        while self.bytes > RECENT_BYTES
            && let Some(oldest) = self.frames.pop_front()
        {
            self.bytes -= oldest.text.len();
            self.after = oldest.id;
        }
    }
}

async fn follow(tail: Weak<Tail>) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(tail) = tail.upgrade() else {
            return;
        };
        if let Err(error) = tail.log.update().await {
            tracing::warn!(run = %tail.log.run, error = %error_chain(&error), "cannot copy the mirrored events of the run");
        }
        if let Err(error) = tail.advance() {
            tracing::warn!(run = %tail.log.run, error = %error_chain(&error), "cannot read the event log of the run");
        }
    }
}
