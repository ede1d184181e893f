//! The record of deliveries in the run directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::state::{StateError, append, if_exists, repair_log, to_json};

/// One line of the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(super) enum DeliveryEntry {
    /// A channel gets no notice of what happened before: it was not configured then, or another host sent it.
    Since { channel: String, at: Timestamp },
    /// A channel accepted a notice.
    Delivered {
        id: String,
        channel: String,
        at: Timestamp,
    },
    /// A channel did not accept a notice, and it is not tried again.
    GaveUp {
        id: String,
        channel: String,
        at: Timestamp,
        reason: String,
    },
}

/// What a channel has to do with earlier notices.
pub(super) struct SettledNotices {
    pub(super) since: Timestamp,
    pub(super) ids: BTreeSet<String>,
}

/// The file of the record. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct DeliveryLog {
    path: PathBuf,
    /// A repair must not cut off a line that another channel adds.
    changing: Arc<Mutex<()>>,
}

impl DeliveryLog {
    /// The record in this file, which may not exist yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            changing: Arc::default(),
        }
    }

    /// What is settled for a channel. One that the record does not know starts with `started`. Only the owner of the run may ask,
    /// because a torn last line is removed.
    pub(super) fn settled(&self, channel: &str, started: Timestamp) -> Result<SettledNotices, StateError> {
        let (mut since, mut ids) = (None, BTreeSet::new());
        for entry in self.read()? {
            match entry {
                DeliveryEntry::Since { channel: of, at } if of == channel => since = Some(at),
                DeliveryEntry::Delivered { id, channel: of, .. }
                | DeliveryEntry::GaveUp { id, channel: of, .. }
                    if of == channel =>
                {
                    ids.insert(id);
                }
                _ => {}
            }
        }
        if since.is_none() {
            self.add(&DeliveryEntry::Since {
                channel: channel.to_owned(),
                at: started,
            })?;
        }
        Ok(SettledNotices {
            since: since.unwrap_or(started),
            ids,
        })
    }

    fn read(&self) -> Result<Vec<DeliveryEntry>, StateError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        repair_log(&self.path)?;
        let text = if_exists(fs::read_to_string(&self.path)).map_err(StateError::io("read", &self.path))?;
        let text = text.unwrap_or_default();
        let parse = |line| serde_json::from_str(line).map_err(StateError::corrupt(&self.path));
        text.lines().map(parse).collect()
    }

    /// Adds a line.
    pub(super) fn add(&self, entry: &DeliveryEntry) -> Result<(), StateError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = to_json(&self.path, entry)?;
        line.push(b'\n');
        append(&self.path, &String::from_utf8_lossy(&line))
    }
}
