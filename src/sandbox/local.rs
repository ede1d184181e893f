//! The `local` provider: plain processes of the host in a directory of their own. It isolates nothing else.

mod layout;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use async_trait::async_trait;

use self::layout::Layout;
use super::files::Files;
use super::shelf::Shelf;
use super::{
    Capabilities, CredentialRoute, Enforced, Isolation, NetworkEnforcement, Provider, Sandbox, SandboxError,
    SandboxFiles, SandboxSpec,
};
use crate::exec::RunningCommand;
use crate::exec::{Command, Exit, Host, OutputSink};

const NAME: &str = "local";

/// What the provider needs to know.
#[derive(Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// The directory below which each run gets one of its own.
    pub base: PathBuf,
    /// The `PATH` of the commands.
    pub path: String,
    /// Variables of the host that the commands may see. Nothing else of its environment reaches them.
    pub passthrough: BTreeMap<String, String>,
}

/// Names of variables only: what a person passes through may be confidential.
impl fmt::Debug for LocalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalOptions")
            .field("base", &self.base)
            .field("path", &self.path)
            .field("passthrough", &self.passthrough.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// Makes sandboxes that are directories of the host: `<base>/<run>/sandbox`.
#[derive(Debug)]
pub struct LocalProvider {
    options: LocalOptions,
}

impl LocalProvider {
    /// A provider that keeps its sandboxes below `options.base`.
    #[must_use]
    pub fn new(options: LocalOptions) -> Self {
        Self { options }
    }

    fn open(&self, layout: Layout, spec: &SandboxSpec) -> Box<dyn Sandbox> {
        let inside = |name: &str| layout.root.join(name).to_string_lossy().into_owned();
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), self.options.path.clone()),
            ("HOME".to_owned(), inside("home")),
            ("TMPDIR".to_owned(), inside("tmp")),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ]);
        env.extend(self.options.passthrough.clone());
        env.extend(spec.env.clone());
        let host = Host::new(env)
            .with_dir(&layout.root)
            .with_grace(spec.completion_grace)
            .with_name(&layout.root);
        let id = format!("{NAME}-{}", spec.run);
        Box::new(LocalSandbox {
            files: Shelf {
                sandbox: id.clone(),
                root: layout.root.clone(),
                files: Files::new(&layout.root, &layout.staging),
            },
            id,
            layout,
            host,
            state: RwLock::new(State::Running),
        })
    }
}

#[async_trait]
impl Provider for LocalProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::DirectoryOnly,
            network: NetworkEnforcement::Nothing,
            resources: Enforced::No,
            metering: Enforced::Yes,
            preview: true,
            credentials: CredentialRoute::Loopback,
        }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let (base, run) = (self.options.base.clone(), spec.run.clone());
        let layout = blocking(move || Layout::make(&base, &run))
            .await
            .map_err(|source| on_host("make", Layout::below(&self.options.base, &spec.run), source))?;
        Ok(self.open(layout, spec))
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let (base, run) = (self.options.base.clone(), spec.run.clone());
        let layout = blocking(move || Layout::find(&base, &run))
            .await
            .map_err(|source| on_host("open", Layout::below(&self.options.base, &spec.run), source))?;
        Ok(layout.map(|layout| self.open(layout, spec)))
    }
}

/// Whether commands may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Stopped,
    Closed,
}

/// One directory and the processes started in it.
#[derive(Debug)]
struct LocalSandbox {
    id: String,
    layout: Layout,
    host: Host,
    files: Shelf,
    /// Held while a command starts, so that none slips in while the sandbox is being stopped.
    state: RwLock<State>,
}

impl LocalSandbox {
    fn start_command<'a>(&self, command: &'a Command) -> Result<RunningCommand<'a>, SandboxError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Running => {}
            State::Stopped => return Err(SandboxError::stopped(&self.id)),
            State::Closed => return Err(self.gone()),
        }
        self.host.start(command).map_err(|source| {
            if self.layout.root.is_dir() {
                SandboxError::not_started(&command.program, source)
            } else {
                self.gone()
            }
        })
    }

    /// Moves to another state; one that is closed stays so.
    fn enter(&self, next: State) -> Result<(), SandboxError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if *state == State::Closed && next != State::Closed {
            return Err(self.gone());
        }
        *state = next;
        Ok(())
    }

    fn gone(&self) -> SandboxError {
        SandboxError::gone(&self.id)
    }

    fn processes(&self, source: io::Error) -> SandboxError {
        SandboxError::processes(&self.id, source)
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn root(&self) -> &Path {
        &self.layout.root
    }

    fn files(&self) -> &dyn SandboxFiles {
        &self.files
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        let running = self.start_command(command)?;
        running
            .finish(output)
            .await
            .map_err(|source| self.processes(source))
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        self.host
            .kill_all()
            .await
            .map_err(|source| self.processes(source))
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.enter(State::Running)
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.enter(State::Stopped)?;
        self.end_processes().await
    }

    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        Ok(Some(format!("http://127.0.0.1:{port}")))
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.enter(State::Closed)?;
        self.end_processes().await?;
        let layout = self.layout.clone();
        blocking(move || layout.remove())
            .await
            .map_err(|source| on_host("remove", self.layout.clone(), source))
    }
}

fn on_host(operation: &'static str, layout: Layout, source: io::Error) -> SandboxError {
    SandboxError::host(operation, &layout.root, source)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::exec::Discard;
    use crate::id::RunId;

    fn provider(base: &Path) -> LocalProvider {
        LocalProvider::new(LocalOptions {
            base: base.to_owned(),
            path: "/usr/bin:/bin".to_owned(),
            passthrough: BTreeMap::from([("PASSED".to_owned(), "by choice".to_owned())]),
        })
    }

    fn spec() -> SandboxSpec {
        SandboxSpec {
            env: BTreeMap::from([("OF_SPEC".to_owned(), "1".to_owned())]),
            completion_grace: Duration::from_millis(100),
            ..SandboxSpec::unrestricted(RunId::parse("r2345").unwrap())
        }
    }

    #[tokio::test]
    async fn commands_see_exactly_what_they_are_given() {
        let base = TempDir::new().unwrap();
        let sandbox = provider(base.path()).create(&spec()).await.unwrap();
        let exit = sandbox.exec(&Command::new("env"), &mut Discard).await.unwrap();
        let text = exit.stdout.text();
        let seen: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
        let names: Vec<&str> = seen.keys().copied().collect();
        assert_eq!(
            names,
            [
                "HOME",
                "LANG",
                "OF_SPEC",
                "PASSED",
                "PATH",
                "RALPH_MARK",
                "TMPDIR"
            ]
        );
        assert_eq!(Path::new(seen["HOME"]), sandbox.root().join("home"));
        assert_eq!(Path::new(seen["TMPDIR"]), sandbox.root().join("tmp"));
    }

    #[rstest]
    #[case::an_absolute_path("/etc/passwd")]
    #[case::a_path_upwards("work/../../secret")]
    #[case::a_link_to_a_file("file")]
    #[case::a_link_upwards("up/secret")]
    #[case::a_link_to_a_link("hop/secret")]
    #[tokio::test]
    async fn what_leads_out_is_refused_by_name(#[case] path: &str) {
        let base = TempDir::new().unwrap();
        let sandbox = provider(base.path()).create(&spec()).await.unwrap();
        fs::write(base.path().join("r2345/secret"), "x").unwrap();
        for (target, link) in [("/etc/passwd", "file"), ("work/../..", "up"), ("up", "hop")] {
            symlink(target, sandbox.root().join(link)).unwrap();
        }
        let (path, files) = (Path::new(path), sandbox.files());
        let expected = format!("`{}` leads out of the sandbox", path.display());
        let tried = [
            files.read(path, 10).await.map(drop),
            files.write(path, b"x", 0o644).await,
            files.append(path, b"x").await,
            files.list(path).await.map(drop),
            files.mkdir(path).await,
        ];
        for result in tried {
            assert_eq!(result.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn debug_shows_no_values() {
        assert!(!format!("{:?}", provider(Path::new("/nowhere"))).contains("by choice"));
    }

    #[tokio::test]
    async fn closing_leaves_what_others_keep_beside_it() {
        let base = TempDir::new().unwrap();
        let run_dir = base.path().join("r2345");
        let first = provider(base.path()).create(&spec()).await.unwrap();
        fs::write(run_dir.join("journal"), "kept").unwrap();
        first.close().await.unwrap();
        assert_eq!(fs::read_dir(&run_dir).unwrap().count(), 1);
        fs::remove_file(run_dir.join("journal")).unwrap();
        let second = provider(base.path()).create(&spec()).await.unwrap();
        second.close().await.unwrap();
        assert!(!run_dir.exists());
    }

    #[tokio::test]
    async fn a_sandbox_interrupted_in_the_making_is_mended() {
        let base = TempDir::new().unwrap();
        fs::create_dir_all(base.path().join("r2345/sandbox")).unwrap();
        fs::create_dir_all(base.path().join("r2345/staging")).unwrap();
        fs::write(base.path().join("r2345/staging/half"), "a fi").unwrap();
        let sandbox = provider(base.path()).reopen(&spec()).await.unwrap().unwrap();
        sandbox
            .files()
            .write(Path::new("work/file"), b"whole", 0o644)
            .await
            .unwrap();
        assert_eq!(
            fs::read_dir(base.path().join("r2345/staging")).unwrap().count(),
            0
        );
    }

    #[tokio::test]
    async fn a_preview_is_a_port_of_this_machine() {
        let base = TempDir::new().unwrap();
        let sandbox = provider(base.path()).create(&spec()).await.unwrap();
        assert_eq!(
            sandbox.preview(8080).await.unwrap().as_deref(),
            Some("http://127.0.0.1:8080")
        );
    }
}
