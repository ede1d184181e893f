//! Makes a sandbox that runs ready for commands: its directories, its variables, the guest.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use reqwest::multipart::Part;

use super::DaytonaError;
use super::api::Api;
use super::files::RemoteFiles;
use super::plain::Plain;
use super::sandbox::DaytonaSandbox;
use super::secrets;
use super::terminal::ByTerminal;
use super::toolbox::Toolbox;
use super::wire::Remote;
use crate::guest;
use crate::sandbox::SandboxSpec;
use crate::sandbox::guest::arch;
use crate::sandbox::session::Surroundings;
use crate::sandbox::warm::Warm;

const PREPARE: &str = include_str!("prepare.sh");

/// Makes the guest's file one that may be run and not read: so the system keeps what runs it closed to the others.
const INSTALL: &str = "[ -x \"$2\" ] && exec rm -f -- \"$1\"; chmod 111 \"$1\" && mv -f -- \"$1\" \"$2\"";

/// Opens a sandbox that runs.
pub(super) async fn open(
    api: &Api,
    remote: Remote,
    spec: &SandboxSpec,
) -> Result<DaytonaSandbox, DaytonaError> {
    let toolbox = api.toolbox(&remote);
    let found = Found::in_sandbox(&toolbox, &secrets::variables_of(&remote)).await?;
    let root = found.home.join("ralph");
    let env = variables(&found, spec);
    let surroundings = Surroundings {
        sandbox: remote.name.clone(),
        env: env.clone(),
        dir: root.clone(),
        grace: spec.completion_grace,
    };
    let opener = |guest| ByTerminal {
        toolbox: toolbox.clone(),
        guest,
        surroundings,
    };
    let warm = match install(&toolbox, &found).await? {
        Ok(guest) => Warm::new(opener(guest)),
        Err(reason) => Warm::never(opener(PathBuf::new()), reason),
    };
    let files = RemoteFiles {
        toolbox: toolbox.clone(),
        root: root.clone(),
        staging: found.home.join(".ralph/staging"),
    };
    let plain = Plain { toolbox, root, env };
    Ok(DaytonaSandbox::new(api.clone(), remote, files, (plain, warm)))
}

/// What there is in a sandbox.
struct Found {
    home: PathBuf,
    path: String,
    processor: String,
    /// What stands for credentials, in the variables that commands look for them in.
    placeholders: Vec<(String, String)>,
}

impl Found {
    async fn in_sandbox(toolbox: &Toolbox, variables: &[String]) -> Result<Self, DaytonaError> {
        let names: Vec<&str> = variables.iter().map(String::as_str).collect();
        let told = toolbox.script(PREPARE, &names).await?;
        let lines: Vec<String> = told.result.lines().map(ToOwned::to_owned).collect();
        match (told.exit_code, lines.as_slice()) {
            (0, [home, path, processor, values @ ..]) if values.len() == variables.len() => Ok(Self {
                home: PathBuf::from(home),
                path: path.clone(),
                processor: processor.clone(),
                placeholders: variables.iter().cloned().zip(values.iter().cloned()).collect(),
            }),
            _ => Err(DaytonaError::Answer {
                call: "the directories of a sandbox".to_owned(),
                source: io::Error::other(told.result),
            }),
        }
    }
}

fn variables(found: &Found, spec: &SandboxSpec) -> BTreeMap<String, String> {
    let home = found.home.join("ralph/home");
    let own = [
        ("PATH", found.path.clone()),
        ("HOME", home.to_string_lossy().into_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let mut env: BTreeMap<String, String> = own.map(|(name, value)| (name.to_owned(), value)).into();
    env.extend(found.placeholders.iter().cloned());
    env.extend(spec.env.clone());
    env
}

/// Brings the guest in, unless it is there; the inner error is why there is none.
async fn install(toolbox: &Toolbox, found: &Found) -> Result<Result<PathBuf, &'static str>, DaytonaError> {
    let Some(program) = guest::PROGRAM else {
        return Ok(Err("this ralph was built without its guest"));
    };
    let processor = match found.processor.as_str() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    if processor != arch() {
        return Ok(Err("the sandbox's processor is not of this machine's kind"));
    }
    let file = found.home.join(format!(".ralph/guest-{:016x}", guest::VERSION));
    let installed = file.to_string_lossy();
    if toolbox.script("[ -x \"$1\" ]", &[&installed]).await?.exit_code == 0 {
        return Ok(Ok(file.clone()));
    }
    let aside = found
        .home
        .join(format!(".ralph/staging/{:016x}", fastrand::u64(..)));
    toolbox.put(&aside, Part::bytes(program)).await?;
    let put = toolbox
        .script(INSTALL, &[&aside.to_string_lossy(), &installed])
        .await?;
    match put.exit_code {
        0 => Ok(Ok(file.clone())),
        _ => Ok(Err("it could not be put into the sandbox")),
    }
}
