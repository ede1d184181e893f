//! Prepares a running sandbox for commands: its directories, its variables and the guest.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use reqwest::multipart::Part;

use super::DaytonaError;
use super::api::DaytonaApi;
use super::files::RemoteFiles;
use super::handle::DaytonaHandle;
use super::sandbox::DaytonaSandbox;
use super::secrets;
use super::session_exec::ToolboxSessionExec;
use super::terminal::TerminalOpener;
use super::toolbox::Toolbox;
use super::wire::DaytonaSandboxInfo;
use crate::guest;
use crate::sandbox::SandboxSpec;
use crate::sandbox::guest_file::guest_program;
use crate::sandbox::lifecycle::Lifecycle;
use crate::sandbox::session::SessionContext;
use crate::sandbox::session_slot::SessionSlot;

const PREPARE: &str = include_str!("prepare.sh");

/// Installs the guest with mode `0111`: the kernel then denies other processes access to its memory.
const INSTALL: &str = "[ -x \"$2\" ] && exec rm -f -- \"$1\"; chmod 111 \"$1\" && mv -f -- \"$1\" \"$2\"";

/// Opens a running sandbox.
pub(super) async fn open(
    api: &DaytonaApi,
    info: DaytonaSandboxInfo,
    spec: &SandboxSpec,
) -> Result<DaytonaSandbox, DaytonaError> {
    let toolbox = api.toolbox(&info);
    let facts = SandboxFacts::read(&toolbox, &secrets::placeholder_variables(&info)).await?;
    let root = facts.home.join("ralph");
    let env = variables(&facts, spec);
    let context = SessionContext {
        sandbox: info.name.clone(),
        env: env.clone(),
        dir: root.clone(),
        grace: spec.completion_grace,
    };
    let opener = |guest| TerminalOpener {
        toolbox: toolbox.clone(),
        guest,
        context,
    };
    let slot = match install(&toolbox, &facts).await? {
        Ok(guest) => SessionSlot::new(opener(guest)),
        Err(reason) => SessionSlot::without_guest(opener(PathBuf::new()), reason),
    };
    let handle = DaytonaHandle {
        api: api.clone(),
        info,
    };
    let files = RemoteFiles {
        handle: handle.clone(),
        toolbox: toolbox.clone(),
        root: root.clone(),
        staging: facts.home.join(".ralph/staging"),
    };
    Ok(DaytonaSandbox {
        handle,
        files,
        exec: ToolboxSessionExec { toolbox, root, env },
        slot,
        lifecycle: Lifecycle::running(),
    })
}

/// What `prepare.sh` prints about a sandbox.
struct SandboxFacts {
    home: PathBuf,
    path: String,
    processor: String,
    /// Variables with placeholders for credentials.
    placeholders: Vec<(String, String)>,
}

impl SandboxFacts {
    async fn read(toolbox: &Toolbox, variables: &[String]) -> Result<Self, DaytonaError> {
        let names: Vec<&str> = variables.iter().map(String::as_str).collect();
        let printed = toolbox.script(PREPARE, &names).await?;
        let lines: Vec<String> = printed.result.lines().map(ToOwned::to_owned).collect();
        match (printed.exit_code, lines.as_slice()) {
            (0, [home, path, processor, values @ ..]) if values.len() == variables.len() => Ok(Self {
                home: PathBuf::from(home),
                path: path.clone(),
                processor: processor.clone(),
                placeholders: variables.iter().cloned().zip(values.iter().cloned()).collect(),
            }),
            _ => Err(DaytonaError::Response {
                call: "prepare the directories of the sandbox".to_owned(),
                source: io::Error::other(printed.result),
            }),
        }
    }
}

fn variables(facts: &SandboxFacts, spec: &SandboxSpec) -> BTreeMap<String, String> {
    let home = facts.home.join("ralph/home");
    let own = [
        ("PATH", facts.path.clone()),
        ("HOME", home.to_string_lossy().into_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let mut env: BTreeMap<String, String> = own.map(|(name, value)| (name.to_owned(), value)).into();
    env.extend(facts.placeholders.iter().cloned());
    env.extend(spec.env.clone());
    env
}

/// Installs the guest if it is missing. The inner error says why it cannot be used.
async fn install(
    toolbox: &Toolbox,
    facts: &SandboxFacts,
) -> Result<Result<PathBuf, &'static str>, DaytonaError> {
    let arch = match facts.processor.as_str() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let program = match guest_program(arch) {
        Ok(program) => program,
        Err(reason) => return Ok(Err(reason)),
    };
    let file = facts.home.join(format!(".ralph/guest-{:016x}", guest::VERSION));
    let installed = file.to_string_lossy();
    if toolbox.script("[ -x \"$1\" ]", &[&installed]).await?.exit_code == 0 {
        return Ok(Ok(file.clone()));
    }
    let staged = facts
        .home
        .join(format!(".ralph/staging/{:016x}", fastrand::u64(..)));
    toolbox.put(&staged, Part::bytes(program)).await?;
    let put = toolbox
        .script(INSTALL, &[&staged.to_string_lossy(), &installed])
        .await?;
    match put.exit_code {
        0 => Ok(Ok(file.clone())),
        _ => Ok(Err("the guest could not be installed in the sandbox")),
    }
}
