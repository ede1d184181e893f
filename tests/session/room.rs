//! A directory with a guest in it, and a session with that guest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ralph::exec::{Command, Discard, Exit};
use ralph::sandbox::SandboxError;
use ralph::sandbox::session::{Session, Surroundings};
use tempfile::TempDir;
use tokio::process::Child;

use crate::support::guest;

/// Long enough for every test.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a child that holds the streams is waited for here.
pub const GRACE: Duration = Duration::from_millis(300);

/// Waits for something that must end.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it does not end")
}

pub struct Room {
    pub dir: TempDir,
    pub guest: Child,
    pub session: Session,
}

impl Room {
    /// A room, or why there can be none here.
    pub async fn open() -> Result<Self, String> {
        let dir = TempDir::new().unwrap();
        let program = guest::install(dir.path())?;
        let mut guest = guest::start(&program, &[]);
        let session = guest::converse(&mut guest, surroundings(dir.path()))
            .await
            .unwrap();
        Ok(Self { dir, guest, session })
    }

    pub async fn try_exec(&self, command: Command) -> Result<Exit, SandboxError> {
        in_time(self.session.exec(&command, &mut Discard)).await
    }

    pub async fn exec(&self, command: Command) -> Exit {
        self.try_exec(command).await.unwrap()
    }

    pub async fn shell(&self, line: &str) -> Exit {
        self.exec(Command::shell(line)).await
    }

    /// What a shell line prints; it must succeed.
    pub async fn prints(&self, line: &str) -> String {
        let exit = self.shell(line).await;
        assert!(exit.success(), "{line}: {} {}", exit.status, exit.stderr.text());
        exit.stdout.text()
    }
}

/// What commands see in a directory.
pub fn surroundings(dir: &Path) -> Surroundings {
    Surroundings {
        sandbox: "a room".to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        dir: dir.canonicalize().unwrap(),
        grace: GRACE,
    }
}
