//! Long journals, parsed once: of a run with thousands of iterations only what was added is read again.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::RunId;
use crate::state::{Journal, JournalLine, RunDir, StateError, if_exists};

/// Shorter journals are read each time, which takes a few milliseconds.
const KEPT_FROM: u64 = 256 * 1024;

/// How many bytes of journals are kept, as text. Parsed they need about twice as much.
const KEPT_BYTES: u64 = 32 * 1024 * 1024;

/// The journals that are kept, the newest last.
#[derive(Default)]
pub(crate) struct Journals(Mutex<VecDeque<(RunId, Arc<Mutex<ParsedJournal>>)>>);

/// The lines of a journal up to an offset.
#[derive(Default)]
struct ParsedJournal {
    /// The file. A journal that is replaced, as by a checkpoint of another host, is another one.
    inode: u64,
    bytes: u64,
    lines: Vec<JournalLine>,
}

impl Journals {
    /// Calls `read` with the journal of a run as it is now.
    pub(crate) fn read<T>(
        &self,
        run: &RunDir,
        read: impl FnOnce(&[JournalLine]) -> T,
    ) -> Result<T, StateError> {
        let path = run.journal_file();
        let length = if_exists(std::fs::metadata(&path)).map_err(StateError::io("read", &path))?;
        if length.is_none_or(|file| !(KEPT_FROM..=KEPT_BYTES).contains(&file.len())) {
            return Ok(read(&run.journal()?));
        }
        let kept = self.kept(&run.facts().id);
        let result = {
            let mut journal = kept.lock().unwrap_or_else(PoisonError::into_inner);
            journal.advance(run)?;
            read(&journal.lines)
        };
        self.trim();
        Ok(result)
    }

    /// The entry of a run, which is the newest one then.
    fn kept(&self, run: &RunId) -> Arc<Mutex<ParsedJournal>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|(id, _)| id == run);
        let entry = found.and_then(|at| all.remove(at));
        let entry = entry.unwrap_or_else(|| (run.clone(), Arc::default()));
        let journal = entry.1.clone();
        all.push_back(entry);
        journal
    }

    /// Forgets the oldest entries until the rest is short enough.
    fn trim(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = KEPT_BYTES;
        let mut kept = VecDeque::new();
        while let Some((run, journal)) = all.pop_back() {
            // One that is being read now is counted the next time.
            let bytes = journal.try_lock().map_or(0, |journal| journal.bytes);
            let Some(rest) = left.checked_sub(bytes) else {
                break;
            };
            left = rest;
            kept.push_front((run, journal));
        }
        *all = kept;
    }
}

impl ParsedJournal {
    /// Reads the lines that were added.
    fn advance(&mut self, run: &RunDir) -> Result<(), StateError> {
        let path = run.journal_file();
        let unreadable = StateError::io("read", &path);
        let mut text = String::new();
        let opened = File::open(&path).and_then(|mut file| {
            let found = file.metadata()?;
            if found.ino() != self.inode || found.len() < self.bytes {
                *self = Self {
                    inode: found.ino(),
                    ..Self::default()
                };
            }
            file.seek(SeekFrom::Start(self.bytes))?;
            file.read_to_string(&mut text)
        });
        opened.map_err(unreadable)?;
        let lines = Journal::parse_after(&path, &text, self.lines.len())?;
        self.lines.extend(lines);
        self.bytes += text.rfind('\n').map_or(0, |end| end + 1) as u64;
        Ok(())
    }
}
