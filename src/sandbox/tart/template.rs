//! Templates, from which the VMs of a project are cloned: an image in which a script has installed the dependencies.

use super::super::SandboxError;
use super::super::vm::{VmDriver, VmPlan, host_cli};
use super::TartDriver;
use super::cli::command;
use crate::engine::Digest;
use crate::exec::Command;

/// How many hexadecimal digits of the hash a name contains.
const HASH_DIGITS: usize = 12;

impl TartDriver {
    /// Returns the name of the template for an image; creates the template if it does not exist. It is built under the name
    /// of the sandbox's VM, so that an interrupted build is removed together with that sandbox.
    pub(super) async fn ensure_template(&self, image: &str, plan: &VmPlan) -> Result<String, SandboxError> {
        let name = template_name(&plan.spec.purpose.agent, image, &self.dependencies);
        if self.list().await?.contains_key(&name) {
            return Ok(name);
        }
        if self.dependencies.trim().is_empty() {
            self.tart.clone_vm(image, &name).await?;
            return Ok(name);
        }
        let building = plan.name();
        self.tart.clone_vm(image, &building).await?;
        self.check_limit(&building).await?;
        self.install(&building, plan).await?;
        // Another run may have created it meanwhile.
        if !self.list().await?.contains_key(&name) {
            self.tart.clone_vm(&building, &name).await?;
        }
        self.tart.delete(&building).await?;
        Ok(name)
    }

    /// Runs the dependency script in a VM. It is passed as input, so that it needs no quoting and may have any length.
    async fn install(&self, vm: &str, plan: &VmPlan) -> Result<(), SandboxError> {
        self.run(vm, command(["run", vm, "--no-graphics"]), plan).await?;
        let script: Command = self
            .exec(vm)
            .args(["bash", "-e"])
            .stdin(self.dependencies.clone());
        host_cli::run(&self.tart.host, script).await?;
        self.tart.stop(vm).await
    }
}

fn template_name(agent: &str, image: &str, dependencies: &str) -> String {
    let digest = Digest::sha256(format!("{image}\n{dependencies}").as_bytes());
    format!("agent-loop-template-{agent}-{}", &digest.hex()[..HASH_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_template_depends_on_its_content() {
        let base = "ghcr.io/cirruslabs/macos-tahoe-xcode:26";
        assert_eq!(
            template_name("claude", base, ""),
            "agent-loop-template-claude-1769fc75e39e"
        );
        assert_ne!(
            template_name("claude", base, ""),
            template_name("claude", base, "brew install jq\n")
        );
    }
}
