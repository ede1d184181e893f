//! Softnet: what keeps a machine from the network, and needs to be root for that.

use std::os::unix::fs::MetadataExt;

use super::super::SandboxError;
use super::super::machine::Driver;
use super::super::machine::tool;
use super::Macs;
use crate::exec::{Command, Host};

/// The bit that makes a program run as its owner.
const SET_USER: u32 = 0o4000;

/// Whether Softnet can be used without asking anybody.
pub(super) async fn check(host: &Host) -> Result<(), SandboxError> {
    let Some(program) = host.path_of("softnet") else {
        return Err(refused(
            "softnet is not installed: `brew install cirruslabs/cli/softnet`",
        ));
    };
    let is_root = program
        .metadata()
        .is_ok_and(|file| file.mode() & SET_USER != 0 && file.uid() == 0);
    if is_root {
        return Ok(());
    }
    let sudo = Command::new("sudo").args(["--non-interactive", "softnet", "--help"]);
    match tool::try_run(host, sudo).await {
        Ok((_, exit)) if exit.success() => Ok(()),
        Ok(_) | Err(_) => Err(refused(
            "softnet must be root, and there is nobody to ask: `sudo chown root $(which softnet) && sudo chmod u+s \
             $(which softnet)`",
        )),
    }
}

fn refused(reason: &str) -> SandboxError {
    SandboxError::Unsupported {
        provider: Macs::NAME,
        operation: "keep a machine from the network",
        reason: reason.to_owned(),
    }
}
