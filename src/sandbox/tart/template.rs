//! The template that machines of one project are cloned from: an image, and what a script installed in it once.

use super::super::SandboxError;
use super::super::machine::{Driver, Plan, tool};
use super::cli::command;
use super::{Macs, agent};
use crate::engine::Digest;
use crate::exec::Command;

/// How many digits of a hash tell two templates apart.
const DIGITS: usize = 12;

impl Macs {
    /// The template for an image, made first where it is not there. Nobody sees one that is half made: it is made under
    /// another name.
    pub(super) async fn template(&self, image: &str, plan: &Plan) -> Result<String, SandboxError> {
        let name = name(&plan.spec.purpose.agent, image, &self.dependencies);
        if self.tart.list().await?.iter().any(|vm| vm.name == name) {
            return Ok(name);
        }
        if self.dependencies.trim().is_empty() {
            self.tart.clone_vm(image, &name).await?;
            return Ok(name);
        }
        let making = format!("{name}-{:08x}", fastrand::u32(..));
        let made = async {
            self.tart.clone_vm(image, &making).await?;
            self.check_limit(&making).await?;
            self.install(&making, plan).await?;
            self.tart.clone_vm(&making, &name).await
        };
        let made = made.await;
        self.remove(&making).await?;
        made.map(|()| name)
    }

    /// Runs the script of dependencies in a machine. It comes as input: no quoting, and no limit to its length.
    async fn install(&self, machine: &str, plan: &Plan) -> Result<(), SandboxError> {
        let run = command(["run", machine, "--no-graphics"]);
        let child = self.tart.start(run, &plan.place.log()).await?;
        agent::answers(&self.tart, machine, &child, self.boot_patience).await?;
        let script: Command = self
            .exec(machine)
            .args(["bash", "-e"])
            .stdin(self.dependencies.clone());
        tool::run(&self.tart.host, script).await?;
        self.tart.stop(machine).await
    }
}

fn name(agent: &str, image: &str, dependencies: &str) -> String {
    let digest = Digest::of(format!("{image}\n{dependencies}").as_bytes());
    format!("agent-loop-template-{agent}-{}", &digest.hex()[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_named_by_what_is_in_it() {
        let base = "ghcr.io/cirruslabs/macos-tahoe-xcode:26";
        assert_eq!(
            name("claude", base, ""),
            "agent-loop-template-claude-1769fc75e39e"
        );
        assert_ne!(
            name("claude", base, ""),
            name("claude", base, "brew install jq\n")
        );
    }
}
