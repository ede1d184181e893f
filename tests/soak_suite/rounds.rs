//! The rounds: what is chosen for each, and what all of them share.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use ralph::engine::Engine;

use crate::daemon::Daemon;
use crate::desk::Desk;
use crate::fault::{Fault, strike_container};
use crate::footprint::Footprint;
use crate::model::temporary_dir;
use crate::queue::Queue;
use crate::single;
use crate::support::postgres::PostgresServer;
use crate::support::ralph::process_ids_of;
use crate::support::{base, skip};

/// Keeps the rounds of neighbouring seeds apart.
const SEED_STEP: u64 = 1_000_003;

/// How the runs of a round are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `ralph run`, and `ralph resume` after a fault.
    Run,
    /// `ralph submit`, with `ralph serve` and `ralph worker` on a queue in SQLite.
    Sqlite,
    /// `ralph submit`, with two `ralph worker` on a queue in Postgres.
    Postgres,
}

/// Where their agents work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Local,
    Docker,
    /// Docker, with a relay between the sandbox and the gateway.
    DockerRelayed,
}

impl Place {
    /// The configuration of a project whose runs work there.
    fn config(self) -> String {
        let (kind, policy, more) = match self {
            Self::Local => ("local", "allow-all", ""),
            Self::Docker => ("docker", "deny", ""),
            Self::DockerRelayed => ("docker", "deny", "[sandbox.docker]\nseal = \"relayed\"\n"),
        };
        format!(
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"{kind}\"\nimage = \"{}\"\n\
             [sandbox.network]\npolicy = \"{policy}\"\n{more}",
            base::NAME
        )
    }

    /// The size of a disk with room for a run, and little more. The provider `docker` keeps 512 MB free.
    pub fn disk(self) -> &'static str {
        match self {
            Self::Local => "160m",
            Self::Docker | Self::DockerRelayed => "700m",
        }
    }

    /// About how long a run takes there.
    pub fn span(self) -> Duration {
        match self {
            Self::Local => Duration::from_secs(3),
            Self::Docker | Self::DockerRelayed => Duration::from_secs(8),
        }
    }
}

/// What happens in a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub number: u64,
    pub way: Way,
    pub place: Place,
    pub fault: Fault,
    /// Chooses how often the fault strikes, when and where.
    moments: u64,
}

impl Round {
    /// The round with this number of this seed.
    pub fn choose(seed: u64, number: u64, soak: &Soak) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(SEED_STEP).wrapping_add(number));
        loop {
            let round = Self {
                number,
                way: [Way::Run, Way::Sqlite, Way::Postgres][rng.usize(..3)],
                place: [Place::Local, Place::Docker, Place::DockerRelayed][rng.usize(..3)],
                fault: Fault::ALL[rng.usize(..Fault::ALL.len())],
                moments: rng.u64(..),
            };
            if round.is_possible(soak) {
                return round;
            }
        }
    }

    fn is_possible(&self, soak: &Soak) -> bool {
        let fault_applies = match self.fault {
            Fault::FillDisk => self.way == Way::Run,
            Fault::JumpClock => self.way != Way::Run,
            Fault::CutConnections | Fault::RestartPostgres => self.way == Way::Postgres,
            fault => self.place != Place::Local || !fault.needs_engine(),
        };
        let is_here = (self.place == Place::Local || soak.daemon.is_some())
            && (self.way != Way::Postgres || soak.queues.len() == 2);
        fault_applies && is_here
    }

    pub fn rng(&self) -> Rng {
        Rng::with_seed(self.moments)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            way,
            place,
            fault,
            ..
        } = self;
        write!(f, "{number}: {way:?}, {place:?}, {fault:?}")
    }
}

/// What came of a round.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    pub runs: usize,
    /// How often the fault met something.
    pub strikes: u32,
}

/// What lives as long as the soak.
pub struct Soak {
    daemon: Option<Daemon>,
    pub engine: Option<Engine>,
    /// On SQLite, and on Postgres.
    queues: Vec<Queue>,
    /// That of the last round with `ralph run`.
    pub single: Option<Arc<Desk>>,
}

impl Soak {
    pub async fn start() -> Self {
        let mut missing = Vec::new();
        let mut note = |what: &str, why: String| missing.push(format!("no rounds with {what}: {why}"));
        let daemon = Daemon::new().await.map_err(|why| note("docker", why)).ok();
        let server = PostgresServer::start(&[])
            .map_err(|why| note("Postgres", why))
            .ok();
        if !missing.is_empty() {
            skip::record(&missing.join("; "));
        }
        let engine = match &daemon {
            Some(daemon) => Some(daemon.engine().await),
            None => None,
        };
        let mut soak = Self {
            daemon,
            engine,
            queues: Vec::new(),
            single: None,
        };
        soak.queues.push(Queue::start(&soak, Desk::sqlite(), None));
        if let Some(server) = server.map(Arc::new) {
            let desk = Desk::on(server.clone()).await;
            soak.queues.push(Queue::start(&soak, desk, Some(server)));
        }
        soak
    }

    /// Plays a round; the error is what did not hold.
    pub async fn play(&mut self, round: &Round) -> Result<Played, String> {
        let played = async {
            match round.way {
                Way::Run => single::play(self, round),
                Way::Sqlite => self.play_queued(0, round).await,
                Way::Postgres => self.play_queued(1, round).await,
            }
        };
        AssertUnwindSafe(played).catch_unwind().await.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
                .unwrap_or_else(|| "a panic".to_owned())
        })
    }

    async fn play_queued(&mut self, index: usize, round: &Round) -> Played {
        let mut queue = self.queues.remove(index);
        let played = AssertUnwindSafe(queue.play(self, round)).catch_unwind().await;
        self.queues.insert(index, queue);
        played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Does to the engine or a container what the fault means; whether there was something to strike.
    pub fn strike_engine(&mut self, fault: Fault, rng: &mut Rng) -> bool {
        let (Some(daemon), Some(engine)) = (&mut self.daemon, &self.engine) else {
            return false;
        };
        if fault == Fault::RestartEngine {
            daemon.restart();
            return true;
        }
        strike_container(fault, engine, rng)
    }

    /// Adds what processes of the soak have in their environment.
    pub fn in_environment(&self, desk: &Desk, command: &mut Command) {
        let temporary = temporary_dir(desk);
        std::fs::create_dir_all(&temporary).unwrap();
        command.env("TMPDIR", temporary);
        if let Some(daemon) = &self.daemon {
            command.env("DOCKER_HOST", daemon.host());
        }
    }

    /// What the long-living processes held after each round.
    pub fn footprints(&self) -> Vec<(String, Vec<Footprint>)> {
        self.queues.iter().map(Queue::footprints).collect()
    }

    /// Ends everything in an orderly way.
    pub fn end(self) {
        for queue in self.queues {
            queue.end();
        }
    }

    /// Ends everything after a violation, whatever state it is in. The files stay, for people.
    pub fn abandon(self) {
        let desks = self.queues.into_iter().map(Queue::into_desk);
        for desk in desks.chain(self.single) {
            for id in process_ids_of(desk.place.path()) {
                let _ = Command::new("kill").args(["-s", "KILL", &id]).status();
            }
            println!("see {}", desk.place.path().display());
            std::mem::forget(desk);
        }
    }
}

/// Lets the runs of a desk work in this place.
pub fn configure(desk: &Desk, place: Place) {
    desk.place.write("ralph.toml", &place.config());
}
