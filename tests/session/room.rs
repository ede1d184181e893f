//! A directory with a guest in it, and a session with that guest.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ralph::exec::{Command, Discard, Exit};
use ralph::sandbox::SandboxError;
use ralph::sandbox::session::{Session, Surroundings};
use tempfile::TempDir;
use tokio::process::Child;

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
        let program = install(dir.path())?;
        let mut guest = guest(&program, &[]);
        let session = converse(&mut guest, dir.path()).await.unwrap();
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

/// Puts the guest into a directory.
pub fn install(dir: &Path) -> Result<PathBuf, String> {
    let bytes = ralph::guest::PROGRAM.ok_or("ralph was built without a guest")?;
    let program = dir.join("guest");
    std::fs::write(&program, bytes).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Ok(program)
}

/// Starts a guest, by way of `wrapper` if there is one. Its environment holds something that no command may see.
pub fn guest(program: &Path, wrapper: &[&str]) -> Child {
    let mut line: Vec<&str> = wrapper.to_vec();
    line.extend([program.to_str().unwrap(), "session"]);
    tokio::process::Command::new(line[0])
        .args(&line[1..])
        .env("OF_THE_GUEST", "val-51c7")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Opens a session with a guest that was started.
pub async fn converse(
    guest: &mut Child,
    dir: &Path,
) -> Result<Session, ralph::sandbox::session::SessionError> {
    let surroundings = Surroundings {
        sandbox: "a room".to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        dir: dir.canonicalize().unwrap(),
        grace: GRACE,
    };
    let (stdout, stdin) = (guest.stdout.take().unwrap(), guest.stdin.take().unwrap());
    in_time(Session::open(stdout, stdin, surroundings)).await
}
