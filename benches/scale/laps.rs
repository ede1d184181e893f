//! A run whose model answers at once, and when its iterations start, ask and end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ralph::event::{Event, EventKind, EventSink};
use ralph::model::{Model, ModelError, ModelReply, ModelRequest, OnText};
use serde_json::json;

use super::figure::Samples;
use super::stage;

/// The model and the sink of a run. Each answer changes one file of the repository and commits it.
pub(crate) struct Laps {
    files: u64,
    began: Instant,
    started: Mutex<Vec<Instant>>,
    /// When the model was asked, and with how many bytes.
    asked: Mutex<Vec<(Instant, u64)>>,
    ended: Mutex<Vec<Instant>>,
}

impl Laps {
    /// For a run in a repository of so many files, which is driven from now on.
    pub(crate) fn begin(files: u64) -> Self {
        Self {
            files,
            began: Instant::now(),
            started: Mutex::default(),
            asked: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    /// From the end of one iteration to the end of the next, without the first ones.
    pub(crate) fn iterations(&self, skipped: usize) -> Vec<Duration> {
        let ended = locked(&self.ended);
        let between = ended.windows(2).map(|pair| pair[1] - pair[0]);
        between.skip(skipped).collect()
    }

    /// From the beginning until the first iteration starts.
    pub(crate) fn until_first(&self) -> Option<Duration> {
        Some(*locked(&self.started).first()? - self.began)
    }

    /// From the start of each iteration until its model is asked, without the first ones.
    pub(crate) fn until_asked(&self, skipped: usize) -> Samples {
        let (started, asked) = (locked(&self.started), locked(&self.asked));
        let pairs = started.iter().zip(asked.iter());
        Samples::milliseconds(pairs.skip(skipped).map(|(start, (asked, _))| *asked - *start))
    }

    /// How long the newest prompt was, in bytes.
    pub(crate) fn prompt_bytes(&self) -> Option<u64> {
        locked(&self.asked).last().map(|(_, bytes)| *bytes)
    }
}

#[async_trait]
impl Model for Laps {
    async fn answer(&self, request: &ModelRequest, _on_text: OnText<'_>) -> Result<ModelReply, ModelError> {
        let bytes = request
            .messages
            .iter()
            .map(|message| message.content.len() as u64);
        locked(&self.asked).push((Instant::now(), bytes.sum()));
        let number = request.iteration;
        let path = stage::file_name(u64::from(number) * 7919 % self.files);
        let content = format!("Changed in iteration {number}.\n").repeat(10);
        Ok(stage::reply(&json!({
            "summary": "Change one file",
            "actions": [
                {"type": "write", "path": path, "content": content},
                {"type": "commit", "message": "Change one file"},
            ],
        })))
    }
}

impl EventSink for Laps {
    fn emit(&self, event: &Event) {
        match event.kind {
            EventKind::IterationStarted { .. } => locked(&self.started).push(Instant::now()),
            EventKind::IterationEnded { .. } => locked(&self.ended).push(Instant::now()),
            _ => {}
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
