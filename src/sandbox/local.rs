//! The `local` provider: plain processes of the host in a directory of their own. It isolates nothing else.

mod outside;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use async_trait::async_trait;

use self::outside::Outside;
use super::files::{self, WorkspaceFiles};
use super::lifecycle::{Lifecycle, LifecycleState};
use super::{
    Capabilities, CredentialRoute, Enforced, EvidenceSpace, Isolation, NetworkEnforcement, Provider, Sandbox,
    SandboxError, SandboxFiles, SandboxSpec,
};
use crate::exec::{Command, Exit, Host, OutputSink, RunningCommand, blocking};
use crate::id::RunId;

const NAME: &str = "local";

/// Tools that keep the programs behind their shims in a directory of the home: the variable that names it, and its
/// default. Evidence has another home, and finds them by the variable.
const TOOL_HOMES: [(&str, &str); 7] = [
    ("RUSTUP_HOME", ".rustup"),
    ("PYENV_ROOT", ".pyenv"),
    ("RBENV_ROOT", ".rbenv"),
    ("NVM_DIR", ".nvm"),
    ("VOLTA_HOME", ".volta"),
    ("ASDF_DATA_DIR", ".asdf"),
    ("SDKMAN_DIR", ".sdkman"),
];

/// What the provider needs to know.
#[derive(Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// The directory below which each run gets its own.
    pub base: PathBuf,
    /// The `PATH` of the commands.
    pub path: String,
    /// Variables that commands inherit from the host. They inherit no others.
    pub passthrough: BTreeMap<String, String>,
}

/// Shows the names of variables only, because their values may be confidential.
impl fmt::Debug for LocalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalOptions")
            .field("base", &self.base)
            .field("path", &self.path)
            .field("passthrough", &self.passthrough.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// Creates sandboxes that are directories of the host: `<base>/<run>/sandbox`.
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

    fn open(&self, dirs: LocalDirs, created: SystemTime, spec: &SandboxSpec) -> Box<dyn Sandbox> {
        let inside = |name: &str| dirs.root.join(name).to_string_lossy().into_owned();
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), self.options.path.clone()),
            ("HOME".to_owned(), inside("home")),
            ("TMPDIR".to_owned(), inside("tmp")),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ]);
        env.extend(self.options.passthrough.clone());
        env.extend(spec.env.clone());
        let evidence = self.evidence(&env);
        let host = Host::new(env)
            .with_dir(&dirs.root)
            .with_grace(spec.completion_grace)
            .with_name(&dirs.root);
        let id = format!("{NAME}-{}", spec.run);
        Box::new(LocalSandbox {
            files: WorkspaceFiles::new(&id, dirs.root.clone(), dirs.root.clone(), dirs.staging.clone()),
            id,
            dirs,
            host,
            evidence,
            created,
            lifecycle: Lifecycle::running(),
        })
    }

    /// What evidence shares with the agent under these variables.
    fn evidence(&self, env: &BTreeMap<String, String>) -> SharedTools {
        let mut tool_homes = BTreeMap::new();
        if let Some(home) = self.options.passthrough.get("HOME") {
            for (variable, dir) in TOOL_HOMES {
                let dir = Path::new(home).join(dir);
                if !env.contains_key(variable) && dir.is_dir() {
                    tool_homes.insert(variable.to_owned(), dir.to_string_lossy().into_owned());
                }
            }
        }
        let fresh = EvidenceSpace::new(Path::new("/")).env;
        let is_passed = |name: &&String| !fresh.contains_key(*name) && *name != "PATH";
        let passed = self
            .options
            .passthrough
            .iter()
            .filter(|(name, _)| is_passed(name));
        let variables: BTreeMap<String, String> = passed
            .chain(&tool_homes)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        SharedTools {
            outside: Outside {
                path: env.get("PATH").cloned().unwrap_or_default(),
                values: variables.values().cloned().collect(),
                etc: PathBuf::from("/etc"),
            },
            variables: variables.into_keys().collect(),
            tool_homes,
        }
    }

    fn error(&self, operation: &str, spec: &SandboxSpec, error: io::Error) -> SandboxError {
        let dirs = LocalDirs::new(&self.options.base, &spec.run);
        SandboxError::host(operation, &dirs.root, error)
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
        let dirs = blocking(move || {
            let dirs = LocalDirs::create(&base, &run)?;
            let created = dirs.created()?;
            Ok((dirs, created))
        })
        .await;
        let (dirs, created) = dirs.map_err(|error| self.error("create", spec, error))?;
        Ok(self.open(dirs, created, spec))
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let (base, run) = (self.options.base.clone(), spec.run.clone());
        let dirs = blocking(move || {
            let dirs = LocalDirs::open(&base, &run)?;
            dirs.map(|dirs| dirs.created().map(|created| (dirs, created)))
                .transpose()
        })
        .await;
        let dirs = dirs.map_err(|error| self.error("open", spec, error))?;
        Ok(dirs.map(|(dirs, created)| self.open(dirs, created, spec)))
    }
}

/// The host directories of one sandbox.
#[derive(Clone, Debug)]
struct LocalDirs {
    /// The directory of the run. It is removed with its last file.
    run_dir: PathBuf,
    /// The root of the sandbox.
    root: PathBuf,
    /// Where files are written before they are moved into the root, so that commands never see partial files.
    staging: PathBuf,
}

impl LocalDirs {
    /// Creates the directories of a new sandbox. Fails if it exists.
    fn create(base: &Path, run: &RunId) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        let dirs = Self::new(&base.canonicalize()?, run);
        fs::create_dir_all(&dirs.run_dir)?;
        DirBuilder::new().mode(0o700).create(&dirs.root)?;
        dirs.create_missing()?;
        dirs.write_created()?;
        Ok(dirs)
    }

    /// The directories of an existing sandbox. Missing ones are created, in case the creation was interrupted.
    fn open(base: &Path, run: &RunId) -> io::Result<Option<Self>> {
        let base = match base.canonicalize() {
            Ok(base) => base,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let dirs = Self::new(&base, run);
        if !dirs.root.is_dir() {
            return Ok(None);
        }
        files::remove_all(&dirs.staging)?;
        dirs.restore()?;
        dirs.create_missing()?;
        Ok(Some(dirs))
    }

    fn new(base: &Path, run: &RunId) -> Self {
        let run_dir = base.join(run.as_str());
        Self {
            root: run_dir.join("sandbox"),
            staging: run_dir.join("staging"),
            run_dir,
        }
    }

    fn create_missing(&self) -> io::Result<()> {
        for dir in ["work", "home", "tmp"] {
            fs::create_dir_all(self.root.join(dir))?;
        }
        fs::create_dir_all(&self.staging)
    }

    /// Empties the root for an evidence run: what the agent has in it waits elsewhere.
    fn set_aside(&self) -> io::Result<()> {
        self.restore()?;
        fs::create_dir_all(self.aside())?;
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            fs::rename(entry.path(), self.aside().join(entry.file_name()))?;
        }
        self.create_missing()?;
        let evidence = EvidenceSpace::dir(&self.root);
        for dir in ["home", "tmp"] {
            fs::create_dir_all(evidence.join(dir))?;
        }
        Ok(())
    }

    /// Ends an evidence run, also one that was interrupted: removes its files and gives the agent's back.
    fn restore(&self) -> io::Result<()> {
        files::remove_all(&EvidenceSpace::dir(&self.root))?;
        let entries = match fs::read_dir(self.aside()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let place = self.root.join(entry.file_name());
            files::remove_all(&place)?;
            fs::rename(entry.path(), place)?;
        }
        fs::remove_dir(self.aside())
    }

    fn aside(&self) -> PathBuf {
        self.run_dir.join("sandbox-aside")
    }

    /// Holds nothing; its modification time is that of the sandbox's creation, on the clock of the file system.
    fn created_file(&self) -> PathBuf {
        self.run_dir.join("sandbox-created")
    }

    fn write_created(&self) -> io::Result<()> {
        fs::write(self.created_file(), "")
    }

    /// When the sandbox was created, or opened by a person who knows what was written since.
    fn created(&self) -> io::Result<SystemTime> {
        if !self.created_file().exists() {
            self.write_created()?;
        }
        fs::metadata(self.created_file())?.modified()
    }

    fn remove(&self) -> io::Result<()> {
        // The root last: if this process is killed, the next one finds the other directories through it.
        files::remove_all(&self.staging)?;
        files::remove_all(&self.aside())?;
        files::remove_all(&self.created_file())?;
        files::remove_all(&self.root)?;
        // Fails if there are other files of the run, which are kept.
        let _ = fs::remove_dir(&self.run_dir);
        Ok(())
    }
}

/// What evidence shares with the agent: the user's own tools.
#[derive(Clone, Debug)]
struct SharedTools {
    /// What commands read by themselves.
    outside: Outside,
    /// The variables of the user's environment that commands get, besides `PATH`, by name.
    variables: Vec<String>,
    /// Variables for tools that the agent finds through its home.
    tool_homes: BTreeMap<String, String>,
}

impl SharedTools {
    /// Says it to people.
    fn describe(&self) -> Vec<String> {
        let mut shared = vec![
            "the programs, libraries, services and network of this host, which `local` does not isolate"
                .to_owned(),
        ];
        if !self.variables.is_empty() {
            let names: Vec<String> = self.variables.iter().map(|name| format!("`{name}`")).collect();
            shared.push(format!("what these variables name: {}", names.join(", ")));
        }
        shared
    }
}

/// One directory and the processes started in it.
#[derive(Debug)]
struct LocalSandbox {
    id: String,
    dirs: LocalDirs,
    host: Host,
    files: WorkspaceFiles,
    evidence: SharedTools,
    created: SystemTime,
    /// Locked while a command starts, so that none starts while the sandbox is being stopped.
    lifecycle: Lifecycle,
}

impl LocalSandbox {
    fn start_command<'a>(&self, command: &'a Command) -> Result<RunningCommand<'a>, SandboxError> {
        let started = self
            .lifecycle
            .while_running(&self.id, || self.host.start(command))?;
        started.map_err(|error| {
            if self.dirs.root.is_dir() {
                SandboxError::not_started(&command.program, error)
            } else {
                SandboxError::gone(&self.id)
            }
        })
    }

    fn failed(&self, operation: &str, error: io::Error) -> SandboxError {
        SandboxError::host(operation, &self.dirs.root, error)
    }

    fn processes(&self, error: io::Error) -> SandboxError {
        SandboxError::processes(&self.id, error)
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn root(&self) -> &Path {
        &self.dirs.root
    }

    fn files(&self) -> &dyn SandboxFiles {
        &self.files
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        let running = self.start_command(command)?;
        running
            .finish(output)
            .await
            .map_err(|error| self.processes(error))
    }

    async fn evidence_space(&self) -> Result<EvidenceSpace, SandboxError> {
        let (dirs, outside, created) = (self.dirs.clone(), self.evidence.outside.clone(), self.created);
        let prepared = blocking(move || {
            dirs.set_aside()?;
            let written = outside.written_since(created);
            if !written.is_empty() {
                // Who opens the sandbox again knows of them.
                files::remove_all(&dirs.created_file())?;
            }
            Ok(written)
        });
        let prepared: io::Result<Vec<PathBuf>> = prepared.await;
        let mut space = EvidenceSpace::new(&self.dirs.root);
        space.written = prepared.map_err(|error| self.failed("prepare evidence in", error))?;
        space.shared = self.evidence.describe();
        space.env.extend(self.evidence.tool_homes.clone());
        Ok(space)
    }

    async fn end_evidence(&self) -> Result<(), SandboxError> {
        let dirs = self.dirs.clone();
        let restored = blocking(move || dirs.restore()).await;
        restored.map_err(|error| self.failed("end evidence in", error))
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        self.host.kill_all().await.map_err(|error| self.processes(error))
    }

    async fn start(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Running, &self.id)
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Stopped, &self.id)?;
        self.end_processes().await
    }

    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        Ok(Some(format!("http://127.0.0.1:{port}")))
    }

    async fn close(&self) -> Result<(), SandboxError> {
        self.lifecycle.enter(LifecycleState::Closed, &self.id)?;
        self.end_processes().await?;
        let dirs = self.dirs.clone();
        let removed = blocking(move || dirs.remove()).await;
        removed.map_err(|error| self.failed("remove", error))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::exec::Discard;
    use crate::exec::tests::search_path;

    fn provider(base: &Path) -> LocalProvider {
        LocalProvider::new(LocalOptions {
            base: base.to_owned(),
            path: search_path(),
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
    async fn commands_see_only_the_variables_of_options_and_spec() {
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
    async fn a_path_that_leads_out_is_an_error(#[case] path: &str) {
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
    async fn closing_keeps_other_files_of_the_run() {
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
    async fn an_interrupted_creation_is_completed() {
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
    async fn a_preview_is_a_port_of_the_host() {
        let base = TempDir::new().unwrap();
        let sandbox = provider(base.path()).create(&spec()).await.unwrap();
        assert_eq!(
            sandbox.preview(8080).await.unwrap().as_deref(),
            Some("http://127.0.0.1:8080")
        );
    }
}
