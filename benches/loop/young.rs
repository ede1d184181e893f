//! A run in its first iterations, which goes on by one each time it is asked to.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use ralph::model::{Model, ModelError, ModelReply, ModelRequest, OnText};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use super::Fallible;
use super::figure::Samples;
use super::overhead::Change;
use super::stage::{self, Stage};
use super::stopwatch::{Stopwatch, WARM_UP};

/// More than are ever asked for: the last ones wait for ever.
const ITERATIONS: u32 = 100;

pub(crate) struct Young {
    run: JoinHandle<()>,
    go_on: mpsc::Sender<()>,
    waits: mpsc::Receiver<()>,
    watch: Arc<Stopwatch>,
}

impl Young {
    /// Begins a run in a repository of its own, and lets it do the iterations that are not counted.
    pub(crate) async fn warmed_up(stage: &Stage) -> Fallible<Self> {
        let repository = stage.repository("young", stage::LARGE).await?;
        let (go_on, turns) = mpsc::channel(1);
        let (waiting, waits) = mpsc::channel(1);
        let watch = Arc::new(Stopwatch::default());
        let model = Arc::new(InTurns {
            waiting,
            turns: Mutex::new(turns),
            watch: watch.clone(),
        });
        let (stage, sink) = (stage.clone(), watch.clone());
        let run = tokio::spawn(async move {
            if let Err(error) = stage.run(&repository, (model, sink), ITERATIONS).await {
                println!("the run that took turns failed: {error}");
            }
        });
        let mut young = Self {
            run,
            go_on,
            waits,
            watch,
        };
        young.until_it_waits().await?;
        for _ in 0..WARM_UP {
            young.iterate().await?;
        }
        Ok(young)
    }

    /// Lets it do one iteration.
    pub(crate) async fn iterate(&mut self) -> Fallible<()> {
        self.go_on.send(()).await?;
        self.until_it_waits().await
    }

    /// How long its iterations took.
    pub(crate) fn samples(self) -> Samples {
        self.watch.samples()
    }

    async fn until_it_waits(&mut self) -> Fallible<()> {
        let waits = self.waits.recv().await;
        Ok(waits.ok_or("the run that takes turns has ended")?)
    }
}

impl Drop for Young {
    fn drop(&mut self) {
        self.run.abort();
    }
}

/// Answers one call each time it is asked to.
struct InTurns {
    waiting: mpsc::Sender<()>,
    turns: Mutex<mpsc::Receiver<()>>,
    watch: Arc<Stopwatch>,
}

#[async_trait]
impl Model for InTurns {
    async fn answer(&self, request: &ModelRequest, _on_text: OnText<'_>) -> Result<ModelReply, ModelError> {
        let asked = Instant::now();
        let over = |_| stage::refusal("the benchmark takes no turns any more");
        self.waiting.send(()).await.map_err(over)?;
        let turn = self.turns.lock().await.recv().await;
        turn.ok_or_else(|| stage::refusal("the benchmark takes no turns any more"))?;
        self.watch.leave_out(asked.elapsed());
        Ok(Change::number(request.iteration).reply())
    }
}
