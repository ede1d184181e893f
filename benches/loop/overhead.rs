//! What an iteration costs beside the model, on a large repository, against the bare git commands it needs; and
//! whether it costs more the longer a run goes on, against a run that has just begun.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ralph::model::{Model, ModelError, ModelReply, ModelRequest, OnText};
use serde_json::json;
use tokio::sync::Mutex;

use super::Fallible;
use super::figure::{Figure, MEDIAN, P95, PeerSamples, Samples, Target, quick};
use super::stage::{self, Stage};
use super::stopwatch::{Stopwatch, WARM_UP};
use super::young::Young;

const ITERATIONS: u32 = 200;
/// Too few to see growth, but the figure is printed.
const QUICK_ITERATIONS: u32 = 40;
/// In so many of the last iterations, a run that began just then takes turns with the one that is measured.
const LATE: u32 = 50;
const QUICK_LATE: u32 = 10;

/// Of the iterations on a huge repository, half warm up.
const HUGE_ITERATIONS: u32 = 20;

pub(crate) async fn measure(stage: &Stage, repository: &Path) -> Fallible<Vec<Figure>> {
    let iterations = quick::pick(ITERATIONS, QUICK_ITERATIONS);
    let late = quick::pick(LATE, QUICK_LATE);
    let model = Interleaved::new(stage, repository, iterations - late + 1).await?;
    let (ours, peer) = model.clone().run(repository, iterations).await?;
    let young = model
        .young
        .lock()
        .await
        .take()
        .ok_or("no run took turns")?
        .samples();
    // The first ones are not counted.
    let counted = iterations as usize - WARM_UP;
    let old = ours.part(counted - late as usize..counted);
    println!("iteration, ms: ours {ours}; git status, add, diff and commit {peer}");
    println!("in turns, ms: the last {late} iterations {old}; {late} early ones of another run {young}");
    let figure = |name, at, ours: &Samples, peer, target| Figure {
        name,
        unit: "ms",
        at,
        ours: ours.clone(),
        peer,
        target,
    };
    let git = || Some(PeerSamples::new("git status, add, diff, commit", &peer));
    let young = Some(PeerSamples::new("early iterations", &young));
    Ok(vec![
        figure("iteration", MEDIAN, &ours, git(), Target::Ratio(0.5)),
        figure("iteration-p95", P95, &ours, git(), Target::Ratio(0.5)),
        figure("iteration-median", MEDIAN, &ours, git(), Target::Most(250.0)),
        figure("iteration-growth", MEDIAN, &old, young, Target::Ratio(1.15)),
    ])
}

/// The same on a repository of ten times as many files.
pub(crate) async fn measure_huge(stage: &Stage) -> Fallible<Figure> {
    let repository = stage.repository("huge", stage::HUGE).await?;
    let model = Interleaved::new(stage, &repository, HUGE_ITERATIONS + 1).await?;
    let (ours, peer) = model.run(&repository, HUGE_ITERATIONS).await?;
    println!("iteration on {} files, ms: ours {ours}; git {peer}", stage::HUGE);
    Ok(Figure {
        name: "iteration-500000-files",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("git status, add, diff, commit", &peer)),
        target: Target::Ratio(0.7),
    })
}

/// Answers at once. Before that it lets the peer do the same work, and late in the run a younger run one iteration of
/// its own, so that noise hits all alike.
struct Interleaved {
    peer: Peer,
    peers_time: Mutex<Vec<Duration>>,
    stage: Stage,
    watch: Arc<Stopwatch>,
    young: Mutex<Option<Young>>,
    turns_from: u32,
}

impl Interleaved {
    async fn new(stage: &Stage, repository: &Path, turns_from: u32) -> Fallible<Arc<Self>> {
        Ok(Arc::new(Self {
            peer: Peer::clone(stage, repository).await?,
            peers_time: Mutex::default(),
            stage: stage.clone(),
            watch: Arc::default(),
            young: Mutex::default(),
            turns_from,
        }))
    }

    /// Runs so many iterations, and returns how long ours and the peer's took.
    async fn run(self: Arc<Self>, repository: &Path, iterations: u32) -> Fallible<(Samples, Samples)> {
        let watch = self.watch.clone();
        let ended = self
            .stage
            .run(repository, (self.clone(), watch), iterations)
            .await?;
        if ended.used.iterations != iterations {
            return Err(format!("the run ended early: {}", ended.reason).into());
        }
        let peer = Stopwatch::counted(&self.peers_time.lock().await);
        Ok((self.watch.samples(), peer))
    }

    async fn let_the_others_work(&self, iteration: u32) -> Fallible<()> {
        let spent = self.peer.work(&Change::number(iteration)).await?;
        self.peers_time.lock().await.push(spent);
        if iteration >= self.turns_from {
            let mut young = self.young.lock().await;
            if young.is_none() {
                *young = Some(Young::warmed_up(&self.stage).await?);
            }
            if let Some(young) = young.as_mut() {
                young.iterate().await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Model for Interleaved {
    async fn answer(&self, request: &ModelRequest, _on_text: OnText<'_>) -> Result<ModelReply, ModelError> {
        let asked = Instant::now();
        self.let_the_others_work(request.iteration)
            .await
            .map_err(|error| stage::refusal(&error.to_string()))?;
        self.watch.leave_out(asked.elapsed());
        Ok(Change::number(request.iteration).reply())
    }
}

/// What all of them do in one iteration: a file gets another content.
pub(crate) struct Change {
    path: String,
    content: String,
}

impl Change {
    pub(crate) fn number(number: u32) -> Self {
        Self {
            path: stage::file_name(u64::from(number) * 7919 % stage::LARGE),
            content: format!("Changed in iteration {number}.\n").repeat(10),
        }
    }

    /// The answer that makes it.
    pub(crate) fn reply(&self) -> ModelReply {
        stage::reply(&json!({
            "summary": "Change one file",
            "actions": [
                {"type": "write", "path": self.path, "content": self.content},
                {"type": "commit", "message": "Change one file"},
            ],
        }))
    }
}

/// An ordinary clone, worked on with git as it comes.
struct Peer {
    stage: Stage,
    clone: PathBuf,
}

impl Peer {
    async fn clone(stage: &Stage, repository: &Path) -> Fallible<Self> {
        let name = repository.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            stage: stage.clone(),
            clone: stage.clone_of(repository, &format!("peer-of-{name}")).await?,
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
