//! What a task in containers needs: an engine, an image, and an address of the host that containers reach.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use ralph::engine::Engine;

use crate::bench::Within;
use crate::support::engine::docker;
use crate::support::{base, engine};

/// An engine with an image, and a network of its own whose gateway is the host. The network is removed when dropped.
pub struct Container {
    pub engine: Engine,
    image: String,
    network: String,
}

impl Container {
    /// On the engine that answers, or why not.
    pub async fn new() -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let engine = engine::engine().await?;
        let image = base::image(&engine).await?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let network = format!("ralph-test-agents-{}-{number}", std::process::id());
        docker(&engine, &["network", "create", &network]);
        Ok(Self {
            engine,
            image,
            network,
        })
    }

    /// The address that its containers reach.
    pub fn address(&self) -> IpAddr {
        let gateway = "{{(index .IPAM.Config 0).Gateway}}";
        let shown = docker(
            &self.engine,
            &["network", "inspect", "--format", gateway, &self.network],
        );
        shown.trim().parse().unwrap()
    }

    /// Removes what a run left on the engine.
    pub fn remove_sandboxes_of(&self, run: &str) {
        let of_run = format!("label=ralph.run={run}");
        let found = docker(&self.engine, &["ps", "--all", "--quiet", "--filter", &of_run]);
        for container in found.split_whitespace() {
            docker(&self.engine, &["rm", "--force", container]);
        }
    }

    /// The configuration of a sandbox with nothing to reach but its gateway.
    pub fn sealed(&self) -> String {
        format!(
            "[sandbox]\ntype = \"docker\"\nimage = \"{}\"\n[sandbox.network]\npolicy = \"deny\"\n\
             [sandbox.resources]\nmemory = \"2g\"\ncpus = \"1\"\n{}",
            self.image,
            engine::seal_config()
        )
    }

    /// The configuration of a sandbox that has this program of this folder.
    pub fn settings(&self, name: &str, folder: &Path, within: Within) -> String {
        let network = match within {
            Within::Sealed => "policy = \"deny\"".to_owned(),
            Within::Directory | Within::Container => {
                let address = self.address();
                format!("policy = \"allow-all\"\ndangerously_allow_addresses = [\"{address}\"]")
            }
        };
        let program = std::fs::canonicalize(folder.join(name)).unwrap();
        format!(
            "[sandbox]\ntype = \"docker\"\nimage = \"{}\"\n\
             mounts = [{{ source = \"{}\", target = \"/usr/local/bin/{name}\" }}]\n\
             [sandbox.network]\n{network}\n\
             [sandbox.resources]\nmemory = \"2g\"\ncpus = \"1\"\n{}",
            self.image,
            program.display(),
            engine::seal_config()
        )
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        docker(&self.engine, &["network", "rm", &self.network]);
    }
}
