//! What an iteration costs beside the model, on a large repository, against the bare git commands it needs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ralph::event::{Event, EventKind, EventSink};
use ralph::model::{Model, ModelError, OnText, Reply, Request};
use serde_json::json;

use super::Fallible;
use super::figure::{Figure, Samples, Target};
use super::stage::{self, Stage};

/// The first iterations find cold caches and are not counted.
const WARM_UP: usize = 10;
const ITERATIONS: u32 = 200;
/// Iterations 11 to 60 and 151 to 200 are compared to see whether the cost grows; these are their counted samples.
const EARLY: std::ops::Range<usize> = 0..50;
const LATE: std::ops::Range<usize> = 140..190;

pub(crate) async fn measure(stage: &Stage, repository: &Path) -> Fallible<Vec<Figure>> {
    let peer = Peer::clone(stage, repository).await?;
    let watch = Arc::new(Stopwatch::default());
    let model = Arc::new(Interleaved {
        peer,
        watch: watch.clone(),
    });
    let ended = stage.run(repository, (model, watch.clone()), ITERATIONS).await?;
    if ended.iterations != ITERATIONS {
        return Err(format!("the run ended early: {}", ended.reason).into());
    }
    let (ours, peer) = watch.samples();
    println!("iteration, ms: ours {ours}; git status, add, diff and commit {peer}");
    let growth_of_peer = peer.part(LATE).median() / peer.part(EARLY).median();
    println!("growth of what git alone needs meanwhile: {growth_of_peer:.2}");
    let figure = |name, ours, peer, target| Figure {
        name,
        unit: "ms",
        ours,
        peer,
        target,
    };
    let (early, late) = (ours.part(EARLY).median(), ours.part(LATE).median());
    Ok(vec![
        figure(
            "iteration",
            ours.median(),
            Some(peer.median()),
            Target::Ratio(1.5),
        ),
        figure("iteration-p95", ours.p95(), Some(peer.p95()), Target::Ratio(1.5)),
        figure("iteration-median", ours.median(), None, Target::Most(250.0)),
        figure("iteration-growth", late, Some(early), Target::Ratio(1.15)),
    ])
}

/// When each iteration ended, and what was spent on the peer in the midst of it.
#[derive(Default)]
struct Stopwatch {
    ended: Mutex<Vec<Instant>>,
    peer: Mutex<Vec<Duration>>,
}

impl Stopwatch {
    /// From the end of one iteration to the end of the next, without the peer's time; and the peer's time.
    fn samples(&self) -> (Samples, Samples) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        let between = ended.windows(2).map(|pair| pair[1] - pair[0]);
        let ours = between
            .zip(&peer[1..])
            .map(|(all, peer)| all.saturating_sub(*peer));
        (
            Samples::milliseconds(ours.skip(WARM_UP - 1)),
            Samples::milliseconds(peer[WARM_UP..].iter().copied()),
        )
    }
}

impl EventSink for Stopwatch {
    fn emit(&self, event: &Event) {
        if matches!(event.kind, EventKind::IterationEnded { .. }) {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.push(Instant::now());
        }
    }
}

/// Answers at once. Before that it lets the peer do the same work, so that noise hits both alike.
struct Interleaved {
    peer: Peer,
    watch: Arc<Stopwatch>,
}

#[async_trait]
impl Model for Interleaved {
    async fn answer(&self, request: &Request, _on_text: OnText<'_>) -> Result<Reply, ModelError> {
        let change = Change::number(request.iteration);
        let spent = self
            .peer
            .work(&change)
            .await
            .map_err(|error| ModelError::Refused {
                endpoint: "the peer".to_owned(),
                status: 500,
                message: error.to_string(),
            })?;
        let mut peer = self.watch.peer.lock().unwrap_or_else(PoisonError::into_inner);
        peer.push(spent);
        Ok(stage::reply(&json!({
            "summary": "Change one file",
            "actions": [
                {"type": "write", "path": change.path, "content": change.content},
                {"type": "commit", "message": "Change one file"},
            ],
        })))
    }
}

/// What both do in one iteration: a file gets another content.
struct Change {
    path: String,
    content: String,
}

impl Change {
    fn number(number: u32) -> Self {
        Self {
            path: stage::file_name(u64::from(number) * 7919 % stage::LARGE),
            content: format!("Changed in iteration {number}.\n").repeat(10),
        }
    }
}

/// An ordinary clone, worked on with git as it comes.
struct Peer {
    stage: Stage,
    clone: PathBuf,
}

impl Peer {
    async fn clone(stage: &Stage, repository: &Path) -> Fallible<Self> {
        Ok(Self {
            stage: stage.clone(),
            clone: stage.clone_of(repository, "peer").await?,
        })
    }

    async fn work(&self, change: &Change) -> Fallible<Duration> {
        let started = Instant::now();
        std::fs::write(self.clone.join(&change.path), &change.content)?;
        let commands: [&[&str]; 4] = [
            &["status"],
            &["add", "-A"],
            &["diff", "--cached"],
            &["commit", "-m", "Change one file"],
        ];
        for args in commands {
            self.stage.git(&self.clone, args).await?;
        }
        Ok(started.elapsed())
    }
}
