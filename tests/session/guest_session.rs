//! A guest in a directory of its own, and a warm session with it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph::exec::{Command, Discard, Exit};
use ralph::sandbox::SandboxError;
use ralph::sandbox::session::{SessionContext, WarmSession};
use tempfile::TempDir;
use tokio::process::Child;

use crate::support::{guest, skip};

/// Long enough for every test on a busy host.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The completion grace of the session.
pub const GRACE: Duration = Duration::from_millis(300);

/// Panics if a future does not complete in time.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .expect("it does not end")
}

pub struct GuestSession {
    pub dir: TempDir,
    pub guest: Child,
    pub session: WarmSession,
}

impl GuestSession {
    /// Starts a guest. The error is the reason to skip the test.
    pub async fn open() -> Result<Self, String> {
        Self::with_wrapper(&[]).await
    }

    /// Starts a guest as a user that has no other processes.
    pub async fn as_unique_user() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can become another user".to_owned());
        }
        skip::program("setpriv")?;
        let user = 50_000 + std::process::id() % 10_000 * 10 + fastrand::u32(..10);
        let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
        Self::with_wrapper(&["setpriv", &user, &group, "--clear-groups", "--"]).await
    }

    /// Starts a guest through a wrapper.
    pub async fn with_wrapper(wrapper: &[&str]) -> Result<Self, String> {
        let dir = TempDir::new().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let program = guest::install(dir.path())?;
        let (guest, session) = enter(&program, wrapper).await;
        Ok(Self { dir, guest, session })
    }

    /// Starts another guest after the first was lost.
    pub async fn reopen(&mut self) {
        (self.guest, self.session) = enter(&self.path("guest"), &[]).await;
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A shell line that creates a file again and again for longer than any test: see [`GuestSession::lives`].
    pub fn heartbeat(&self, name: &str) -> String {
        let file = self.path(name);
        format!(
            "for n in $(seq 4000); do : > {}; sleep 0.02; done",
            file.display()
        )
    }

    /// Whether a heartbeat still beats.
    pub async fn lives(&self, name: &str) -> bool {
        beats(&self.path(name)).await
    }

    /// Waits for a file to appear.
    pub async fn wait_for(&self, name: &str) {
        in_time(async {
            while !self.path(name).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    pub fn guest_id(&self) -> u32 {
        self.guest.id().expect("the guest runs")
    }

    /// The most memory the guest ever used, in bytes.
    pub fn memory_of_the_guest(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.guest_id())).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        let kibibytes: u64 = peak.split_ascii_whitespace().next().unwrap().parse().unwrap();
        kibibytes * 1024
    }
}

/// Removes a file and waits until a process creates it again.
pub async fn goes_on(file: &Path) {
    let _ = std::fs::remove_file(file);
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Removes a file and returns whether a process creates it again.
pub async fn beats(file: &Path) -> bool {
    let _ = std::fs::remove_file(file);
    tokio::time::sleep(Duration::from_millis(300)).await;
    file.exists()
}

/// Starts a guest and opens a session with it.
async fn enter(program: &Path, wrapper: &[&str]) -> (Child, WarmSession) {
    let mut guest = guest::start(program, wrapper);
    let context = SessionContext {
        sandbox: "a bench".to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        dir: program.parent().unwrap().canonicalize().unwrap(),
        grace: GRACE,
    };
    let session = in_time(guest::converse(&mut guest, context)).await.unwrap();
    (guest, session)
}
