//! What stands in for Daytona, in a process of its own, so that what is measured of this one is the client's.

use std::process::Stdio;

use ralph::id::RunId;
use ralph::sandbox::SandboxSpec;
use ralph::sandbox::daytona::DaytonaOptions;
use ralph::secret::Secret;
use support::daytona::{Daytona, KEY};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::Fallible;

/// The argument that makes a process this.
pub(crate) const ROLE: &str = "serve-daytona";

/// Serves until it is killed, and prints where.
pub(crate) async fn serve() -> Fallible<()> {
    let daytona = Daytona::in_namespaces().await?;
    println!("{}", daytona.api_url());
    // Its standard input ends with the process that started it.
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(())
}

/// A Daytona in another process. It ends with this.
pub(crate) struct Served {
    url: String,
    _process: Child,
}

impl Served {
    pub(crate) async fn start() -> Fallible<Self> {
        #[expect(clippy::disallowed_methods, reason = "it is this very program")]
        let mut process = Command::new(std::env::current_exe()?)
            .arg(ROLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no output")?;
        let url = BufReader::new(stdout).lines().next_line().await?;
        Ok(Self {
            url: url.ok_or("what stands in for Daytona does not begin: it needs the rights of root")?,
            _process: process,
        })
    }

    pub(crate) fn options(&self) -> DaytonaOptions {
        DaytonaOptions::new(
            self.url.clone(),
            Some(Secret::new(KEY)),
            "bench",
            ralph::clock::system(),
        )
    }

    /// A sandbox without limits; every image is there.
    pub(crate) fn spec() -> SandboxSpec {
        SandboxSpec {
            image: Some("any:v1".to_owned()),
            ..SandboxSpec::unrestricted(RunId::random())
        }
    }

    /// The address of a call of the control plane.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }
}
