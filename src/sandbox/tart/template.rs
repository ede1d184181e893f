//! The template that machines of one project are cloned from: an image, and what a script installed in it once.

use super::super::SandboxError;
use super::super::machine::{Driver, Plan, tool};
use super::Macs;
use super::cli::command;
use crate::engine::Digest;
use crate::exec::Command;

/// How many digits of a hash tell two templates apart.
const DIGITS: usize = 12;

impl Macs {
    /// The template for an image, made first where it is not there. Nobody sees one that is half made: it is made under
    /// the name of the machine it is needed for, of which it is written down whose it is.
    pub(super) async fn template(&self, image: &str, plan: &Plan) -> Result<String, SandboxError> {
        let name = name(&plan.spec.purpose.agent, image, &self.dependencies);
        if self.is_there(&name).await? {
            return Ok(name);
        }
        if self.dependencies.trim().is_empty() {
            self.tart.clone_vm(image, &name).await?;
            return Ok(name);
        }
        let making = plan.name();
        self.tart.clone_vm(image, &making).await?;
        self.check_limit(&making).await?;
        self.install(&making, plan).await?;
        // Another run may have made the same meanwhile.
        if !self.is_there(&name).await? {
            self.tart.clone_vm(&making, &name).await?;
        }
        self.tart.delete(&making).await?;
        Ok(name)
    }

    async fn is_there(&self, name: &str) -> Result<bool, SandboxError> {
        Ok(self.tart.list().await?.iter().any(|vm| vm.name == name))
    }

    /// Runs the script of dependencies in a machine. It comes as input: no quoting, and no limit to its length.
    async fn install(&self, machine: &str, plan: &Plan) -> Result<(), SandboxError> {
        self.run(machine, command(["run", machine, "--no-graphics"]), plan)
            .await?;
        let script: Command = self
            .exec(machine)
            .args(["bash", "-e"])
            .stdin(self.dependencies.clone());
        tool::run(&self.tart.host, script).await?;
        self.tart.stop(machine).await
    }
}

fn name(agent: &str, image: &str, dependencies: &str) -> String {
    let digest = Digest::sha256(format!("{image}\n{dependencies}").as_bytes());
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
