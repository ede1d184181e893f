//! Prepares a running sandbox for commands: its directories, its variables and the guest.

use std::collections::BTreeMap;
use std::path::Path;

use reqwest::multipart::Part;

use super::api::DaytonaApi;
use super::client::DaytonaClient;
use super::error::DaytonaError;
use super::sandbox::DaytonaSandbox;
use super::secrets;
use super::toolbox::{put_file, run_script};
use super::wire::DaytonaSandboxInfo;
use crate::guest;
use crate::sandbox::SandboxSpec;
use crate::sandbox::guest_file::{GuestFile, guest_program};
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
    let variables = secrets::placeholder_variables(&info);
    let names: Vec<&str> = variables.iter().map(String::as_str).collect();
    let printed = run_script(&toolbox, PREPARE, &names).await?;
    let lines: Vec<&str> = printed.result.lines().collect();
    let (home, path, processor, values) = match lines.as_slice() {
        [home, path, processor, values @ ..] if printed.exit_code == 0 && values.len() == names.len() => {
            (Path::new(home), *path, *processor, values)
        }
        _ => {
            let call = "prepare the directories of the sandbox";
            return Err(DaytonaError::response(call, printed.result));
        }
    };
    let root = home.join("ralph");
    let own_home = root.join("home").to_string_lossy().into_owned();
    let own = [
        ("PATH", path),
        ("HOME", &own_home),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
    ];
    let placeholders = names.into_iter().zip(values.iter().copied());
    let mut env: BTreeMap<String, String> = own
        .into_iter()
        .chain(placeholders)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    env.extend(spec.env.clone());
    let staging = home.join(".ralph/staging").to_string_lossy().into_owned();
    let context = SessionContext {
        sandbox: info.name.clone(),
        env,
        dir: root,
        grace: spec.completion_grace,
    };
    let guest = install(&toolbox, home, processor).await?;
    Ok(DaytonaSandbox {
        api: api.clone(),
        info,
        toolbox,
        context,
        staging,
        slot: SessionSlot::new(guest.as_ref().err().copied()),
        guest: guest.unwrap_or_default(),
        lifecycle: Lifecycle::running(),
    })
}

/// Installs the guest if it is missing. The inner error says why it cannot be used.
async fn install(toolbox: &DaytonaClient, home: &Path, processor: &str) -> Result<GuestFile, DaytonaError> {
    let arch = match processor {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let program = match guest_program(arch) {
        Ok(program) => program,
        Err(reason) => return Ok(Err(reason)),
    };
    let file = home.join(format!(".ralph/guest-{:016x}", guest::VERSION));
    let installed = file.to_string_lossy();
    let found = run_script(toolbox, "[ -x \"$1\" ]", &[&installed]).await?;
    if found.exit_code != 0 {
        let staged = home.join(format!(".ralph/staging/{:016x}", fastrand::u64(..)));
        let staged = staged.to_string_lossy();
        put_file(toolbox, &staged, Part::bytes(program)).await?;
        let put = run_script(toolbox, INSTALL, &[&staged, &installed]).await?;
        if put.exit_code != 0 {
            return Ok(Err("the guest could not be installed in the sandbox"));
        }
    }
    Ok(Ok(file))
}
