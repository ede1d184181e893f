//! Templates, from which the VMs of a project are cloned: an image in which a script has installed the dependencies.

use std::collections::BTreeSet;
use std::fs;

use super::super::sandbox_dir::SandboxDir;
use super::super::vm::{VmDriver, VmPlan, host_cli};
use super::super::{ProviderImage, SandboxError, SandboxSpec};
use super::TartDriver;
use super::cli::command;
use crate::engine::Digest;
use crate::exec::Command;

/// How many hexadecimal digits of the hash a name contains.
const HASH_DIGITS: usize = 12;

impl TartDriver {
    /// The name of the template for a spec; `None` without an image.
    pub(super) fn template_of(&self, spec: &SandboxSpec) -> Option<String> {
        let image = spec.image.as_deref()?;
        Some(template_name(&spec.purpose.agent, image, &self.dependencies))
    }

    /// Returns the name of the template for an image; creates the template if it does not exist. It is built under the name
    /// of the sandbox's VM, so that an interrupted build is removed together with that sandbox.
    pub(super) async fn ensure_template(&self, image: &str, plan: &VmPlan) -> Result<String, SandboxError> {
        let name = template_name(&plan.spec.purpose.agent, image, &self.dependencies);
        let is_present = self.list().await?.contains_key(&name);
        if !is_present {
            // A record without a template does no harm; a template without a record would never be removed.
            self.records.note(&name)?;
            self.build_template(image, &name, plan).await?;
        } else if self.records.contains(&name) {
            self.records.note(&name)?;
        }
        let file = plan.dir.template_file();
        fs::write(&file, &name).map_err(|error| SandboxError::host("write", &file, error))?;
        Ok(name)
    }

    async fn build_template(&self, image: &str, name: &str, plan: &VmPlan) -> Result<(), SandboxError> {
        if self.dependencies.trim().is_empty() {
            return self.tart.clone_vm(image, name).await;
        }
        let building = plan.name();
        self.tart.clone_vm(image, &building).await?;
        self.check_limit(&building).await?;
        self.install(&building, plan).await?;
        // Another run may have created it meanwhile.
        if !self.list().await?.contains_key(name) {
            self.tart.clone_vm(&building, name).await?;
        }
        self.tart.delete(&building).await
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

    /// The templates that ralph made, and the planned one. `dirs` are the directories of all sandboxes.
    pub(super) async fn templates(
        &self,
        spec: &SandboxSpec,
        dirs: &[SandboxDir],
    ) -> Result<Vec<ProviderImage>, SandboxError> {
        let (planned, vms) = (self.template_of(spec), self.list().await?);
        let used: BTreeSet<String> = dirs
            .iter()
            .filter_map(|dir| fs::read_to_string(dir.template_file()).ok())
            .collect();
        let records = self.records.all()?.into_iter();
        let made = records.filter(|record| vms.contains_key(&record.name));
        let mut templates: Vec<ProviderImage> = made
            .map(|record| ProviderImage {
                is_present: true,
                is_planned: planned.as_ref() == Some(&record.name),
                is_own: true,
                is_of_project: record.is_of_project,
                in_use: used.contains(&record.name),
                used: record.used,
                name: record.name,
            })
            .collect();
        if let Some(name) = planned.filter(|name| templates.iter().all(|one| one.name != *name)) {
            templates.push(ProviderImage {
                is_present: vms.contains_key(&name),
                is_planned: true,
                is_own: false,
                is_of_project: true,
                in_use: used.contains(&name),
                used: None,
                name,
            });
        }
        templates.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(templates)
    }

    /// Removes a template that ralph made.
    pub(super) async fn remove_template(&self, name: &str) -> Result<(), SandboxError> {
        if !self.records.contains(name) {
            let reason = format!("ralph has no record of having made `{name}`");
            let hint = "if it is a template that nothing needs, remove it with `tart delete`";
            return Err(
                SandboxError::unsupported(Self::NAME, "remove a VM of someone else", reason)
                    .with_hint(Some(hint)),
            );
        }
        self.tart.delete(name).await?;
        self.records.forget(name)
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
