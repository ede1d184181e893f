//! What can happen to a run.

use std::process::Command;

use fastrand::Rng;
use ralph::engine::Engine;

use crate::support::engine::docker;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing happens: the model is checked against an undisturbed run.
    Nothing,
    /// `kill -9` of ralph, and with it of the gateway, which is a part of its process.
    KillRalph,
    /// SIGSTOP, and SIGCONT after a while, often longer than a lease.
    SuspendRalph,
    /// The container of a sandbox is killed.
    KillContainer,
    /// The container of a sandbox is removed.
    RemoveContainer,
    /// The holder of the network is killed: the network is gone.
    KillHolder,
    /// `kill -9` of one process in a container: the guest's session, the relay of the gateway, or a program of the agent.
    KillInside,
    /// The engine is stopped, with all containers, and started again.
    RestartEngine,
    /// The disk with `RALPH_HOME` is full for a while.
    FillDisk,
    /// The clock of the database jumps over the end of all leases.
    JumpClock,
    /// All connections to Postgres are lost.
    CutConnections,
    /// Postgres crashes and starts again.
    RestartPostgres,
}

impl Fault {
    pub const ALL: [Self; 12] = [
        Self::Nothing,
        Self::KillRalph,
        Self::SuspendRalph,
        Self::KillContainer,
        Self::RemoveContainer,
        Self::KillHolder,
        Self::KillInside,
        Self::RestartEngine,
        Self::FillDisk,
        Self::JumpClock,
        Self::CutConnections,
        Self::RestartPostgres,
    ];

    /// Whether it needs a container engine.
    pub fn needs_engine(self) -> bool {
        matches!(
            self,
            Self::KillContainer
                | Self::RemoveContainer
                | Self::KillHolder
                | Self::KillInside
                | Self::RestartEngine
        )
    }

    /// Whether a run may end with an error because of it. It is then resumed.
    pub fn may_end_run(self) -> bool {
        self.needs_engine() || self == Self::FillDisk
    }
}

/// Does something to one of the containers of an engine; `false` if it has no container of that kind.
pub fn strike_container(fault: Fault, engine: &Engine, rng: &mut Rng) -> bool {
    let listed = docker(
        engine,
        &["ps", "--filter", "label=ralph.run", "--format", "{{.Names}}"],
    );
    let mut names: Vec<&str> = listed.lines().collect();
    names.sort_unstable();
    match fault {
        Fault::KillHolder => names.retain(|name| name.ends_with("-net")),
        Fault::KillContainer | Fault::RemoveContainer => names.retain(|name| !name.ends_with("-net")),
        _ => {}
    }
    let Some(name) = rng.choice(names) else {
        return false;
    };
    match fault {
        Fault::KillInside => kill_inside(engine, name, rng),
        Fault::RemoveContainer => succeeds(engine, &["rm", "--force", name]),
        _ => succeeds(engine, &["kill", name]),
    }
}

/// Kills one process of a container, but not the first one, which the container ends with.
fn kill_inside(engine: &Engine, container: &str, rng: &mut Rng) -> bool {
    let listed = docker_output(engine, &["top", container, "-eo", "pid"]);
    let pids: Vec<&str> = listed.lines().skip(2).map(str::trim).collect();
    let Some(pid) = rng.choice(pids) else {
        return false;
    };
    let killed = Command::new("kill").args(["-s", "KILL", pid]).output();
    killed.unwrap().status.success()
}

/// The container may have ended since it was listed.
fn succeeds(engine: &Engine, args: &[&str]) -> bool {
    let mut command = docker_command(engine, args);
    command.output().unwrap().status.success()
}

fn docker_output(engine: &Engine, args: &[&str]) -> String {
    let output = docker_command(engine, args).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn docker_command(engine: &Engine, args: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command
        .env("DOCKER_HOST", engine.endpoint().to_string())
        .args(args);
    command
}
