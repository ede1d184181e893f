//! A guest that runs here as a plain process, and a provider whose commands run over a session with one.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ralph::exec::{Command, Exit, OutputSink};
use ralph::sandbox::local::{LocalOptions, LocalProvider};
use ralph::sandbox::session::{SessionContext, SessionError, WarmSession};
use ralph::sandbox::{Capabilities, Provider, Sandbox, SandboxError, SandboxFiles, SandboxSpec};
use tokio::process::Child;

/// Puts the guest into a directory, or says why there is none.
pub fn install(dir: &Path) -> Result<PathBuf, String> {
    let bytes = ralph::guest::PROGRAM.ok_or("ralph was built without a guest")?;
    let program = dir.join("guest");
    // Written by another process: a file that this one had open for writing, while another test started something, is
    // busy for a moment and cannot be run.
    let mut writer = std::process::Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(writer.wait().unwrap().success());
    Ok(program)
}

/// Starts a guest, by way of `wrapper` if there is one. Its environment holds something that no command may see.
pub fn start(program: &Path, wrapper: &[&str]) -> Child {
    let mut line = wrapper.to_vec();
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
pub async fn converse(guest: &mut Child, context: SessionContext) -> Result<WarmSession, SessionError> {
    let (stdout, stdin) = (guest.stdout.take().unwrap(), guest.stdin.take().unwrap());
    WarmSession::open(stdout, stdin, context).await
}

/// Sandboxes with the files of `local`, whose commands run over a session: one guest for each.
pub struct SessionProvider {
    local: LocalProvider,
    path: String,
    guest: PathBuf,
    rooms: Mutex<HashMap<String, Arc<Room>>>,
}

/// The session of one sandbox, while it is not stopped.
#[derive(Default)]
struct Room(Mutex<Option<Arc<Open>>>);

struct Open {
    session: WarmSession,
    _guest: Child,
}

impl SessionProvider {
    pub fn new(options: LocalOptions, guest: PathBuf) -> Self {
        Self {
            path: options.path.clone(),
            local: LocalProvider::new(options),
            guest,
            rooms: Mutex::default(),
        }
    }

    async fn open(
        &self,
        files: Box<dyn Sandbox>,
        spec: &SandboxSpec,
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let room = {
            let mut rooms = self.rooms.lock().unwrap();
            Arc::clone(rooms.entry(spec.run.to_string()).or_default())
        };
        let inside = |name: &str| files.root().join(name).to_str().unwrap().to_owned();
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), self.path.clone()),
            ("HOME".to_owned(), inside("home")),
            ("TMPDIR".to_owned(), inside("tmp")),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ]);
        env.extend(spec.env.clone());
        let sandbox = SessionSandbox {
            context: SessionContext {
                sandbox: files.id().to_owned(),
                env,
                dir: files.root().to_owned(),
                grace: spec.completion_grace,
            },
            files,
            guest: self.guest.clone(),
            room,
        };
        sandbox.start().await?;
        Ok(Box::new(sandbox))
    }
}

#[async_trait]
impl Provider for SessionProvider {
    fn name(&self) -> &'static str {
        "session"
    }

    fn capabilities(&self) -> Capabilities {
        self.local.capabilities()
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let files = self.local.create(spec).await?;
        self.open(files, spec).await
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        match self.local.reopen(spec).await? {
            Some(files) => Ok(Some(self.open(files, spec).await?)),
            None => Ok(None),
        }
    }
}

struct SessionSandbox {
    files: Box<dyn Sandbox>,
    context: SessionContext,
    guest: PathBuf,
    room: Arc<Room>,
}

impl SessionSandbox {
    /// The session; an error when the sandbox is stopped or gone.
    async fn session(&self) -> Result<Arc<Open>, SandboxError> {
        let open = self.room.0.lock().unwrap().clone();
        self.files.files().list(self.files.root()).await?;
        open.ok_or_else(|| SandboxError::stopped(self.id()))
    }

    async fn end(&self) -> Result<(), SandboxError> {
        let open = self.room.0.lock().unwrap().take();
        match open {
            Some(open) => open.session.end_processes().await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Sandbox for SessionSandbox {
    fn id(&self) -> &str {
        self.files.id()
    }

    fn root(&self) -> &Path {
        self.files.root()
    }

    fn files(&self) -> &dyn SandboxFiles {
        self.files.files()
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.session().await?.session.exec(command, output).await
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        self.session().await?.session.end_processes().await
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.files.start().await?;
        if self.room.0.lock().unwrap().is_some() {
            return Ok(());
        }
        let mut guest = start(&self.guest, &[]);
        let session = converse(&mut guest, self.context.clone()).await.unwrap();
        let open = Open {
            session,
            _guest: guest,
        };
        *self.room.0.lock().unwrap() = Some(Arc::new(open));
        Ok(())
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.files.stop().await?;
        self.end().await
    }

    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        self.files.preview(port).await
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.end().await?;
        self.files.close().await
    }
}
