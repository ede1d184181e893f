//! The command lines of the two programs, and their output.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::host_policy::HostPolicy;
use super::super::vm::limit_flags;
use super::super::{Resources, SandboxActivity};
use crate::exec::{Command, Host};

/// The agent of a sandbox: a plain shell.
const AGENT: &str = "shell";

/// The two programs that create Docker Sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SandboxCli {
    /// `sbx`.
    Sbx,
    /// `docker sandbox`.
    Plugin,
}

impl SandboxCli {
    /// The program to use: `sbx` if it is installed.
    pub(super) fn find(host: &Host) -> Self {
        if host.has_program("sbx") {
            Self::Sbx
        } else {
            Self::Plugin
        }
    }

    /// The name of its executable.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sbx => "sbx",
            Self::Plugin => "docker",
        }
    }

    /// A command with these arguments.
    pub(super) fn command<const N: usize>(self, args: [&str; N]) -> Command {
        let command = match self {
            Self::Sbx => Command::new("sbx"),
            Self::Plugin => Command::new("docker").arg("sandbox"),
        };
        command.args(args)
    }

    /// Creates a sandbox. The shared host paths are appended to it.
    pub(super) fn create(self, name: &str, image: &str, resources: &Resources) -> Command {
        let create = self.command(["create", "--name", name, "-t", image]);
        match self {
            Self::Sbx => create.args(limit_flags(resources, "--cpus", "--memory", "m")),
            // The image is local and in no registry.
            Self::Plugin => create.args(["--pull-template", "never"]),
        }
        .arg(AGENT)
    }

    /// Removes a sandbox.
    pub(super) fn remove(self, name: &str) -> Command {
        match self {
            Self::Sbx => self.command(["rm", "--force", name]),
            Self::Plugin => self.command(["rm", name]),
        }
    }

    /// The commands that set the network rules of a sandbox.
    pub(super) fn restrict(self, name: &str, rules: &HostPolicy) -> Vec<Command> {
        match self {
            Self::Sbx => restrict_sbx(name, rules),
            Self::Plugin => vec![restrict_plugin(name, rules)],
        }
    }
}

/// The default is to deny everything (`policy init deny-all`), so only exceptions are set.
fn restrict_sbx(name: &str, rules: &HostPolicy) -> Vec<Command> {
    let rule = |verb: &str, hosts: &[String]| {
        let command = SandboxCli::Sbx.command(["policy", verb, "network", "--sandbox", name]);
        (!hosts.is_empty()).then(|| command.arg(hosts.join(",")))
    };
    let everything = ["**".to_owned()];
    let commands = match rules {
        HostPolicy::Nothing => [None, None],
        HostPolicy::Only { hosts, except } => [rule("allow", hosts), rule("deny", except)],
        HostPolicy::Everything { except } => [rule("allow", &everything), rule("deny", except)],
    };
    commands.into_iter().flatten().collect()
}

fn restrict_plugin(name: &str, rules: &HostPolicy) -> Command {
    let command = SandboxCli::Plugin.command(["network", "proxy", name, "--policy"]);
    let each = |flag: &'static str, hosts: &[String]| -> Vec<String> {
        hosts
            .iter()
            .flat_map(|host| [flag.to_owned(), host.clone()])
            .collect()
    };
    match rules {
        HostPolicy::Nothing => command.arg("deny"),
        HostPolicy::Only { hosts, except } => command
            .arg("deny")
            .args(each("--allow-host", hosts))
            .args(each("--block-host", except)),
        HostPolicy::Everything { except } => command.arg("allow").args(each("--block-host", except)),
    }
}

/// The output of `ls --json`: `sandboxes` of `sbx`, `vms` of `docker sandbox`. Optional fields are ignored.
#[derive(Deserialize)]
pub(super) struct SandboxList {
    #[serde(alias = "vms")]
    sandboxes: Vec<ListedSandbox>,
}

#[derive(Deserialize)]
struct ListedSandbox {
    name: String,
    #[serde(default)]
    status: String,
}

impl SandboxList {
    /// The state of each sandbox, by name.
    pub(super) fn into_map(self) -> BTreeMap<String, SandboxActivity> {
        let activity = |status: &str| match status {
            "running" => SandboxActivity::Running,
            _ => SandboxActivity::Stopped,
        };
        let sandboxes = self.sandboxes.into_iter();
        sandboxes
            .map(|sandbox| (sandbox.name, activity(&sandbox.status)))
            .collect()
    }
}

/// The output of `sbx template ls --json`.
#[derive(Deserialize)]
pub(super) struct TemplateList {
    pub(super) images: Vec<ListedTemplate>,
}

#[derive(Deserialize)]
pub(super) struct ListedTemplate {
    pub(super) repository: String,
    pub(super) tag: String,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plugin(r#"{"vms":[{"name":"a","agent":"shell","status":"running","workspaces":["/w"]},{"name":"b","status":"stopped"}]}"#)]
    #[case::sbx(r#"{"sandboxes":[{"name":"a","id":"1","status":"running","workspaces":[]},{"name":"b","status":"stopped","created_at":""}]}"#)]
    fn both_lists_are_parsed(#[case] text: &str) {
        let list: SandboxList = serde_json::from_str(text).unwrap();
        let expected = [
            ("a".to_owned(), SandboxActivity::Running),
            ("b".to_owned(), SandboxActivity::Stopped),
        ];
        assert_eq!(list.into_map(), BTreeMap::from(expected));
    }

    #[rstest]
    fn command_lines(#[values(SandboxCli::Sbx, SandboxCli::Plugin)] cli: SandboxCli) {
        let resources = Resources {
            memory_bytes: Some(8 << 30),
            cpu_millis: Some(3500),
            disk_bytes: None,
        };
        let (hosts, except) = (
            vec!["github.com".to_owned(), "*.crates.io:443".to_owned()],
            vec!["evil.org".to_owned()],
        );
        let rules = [
            HostPolicy::Nothing,
            HostPolicy::Only {
                hosts,
                except: except.clone(),
            },
            HostPolicy::Everything { except },
        ];
        let mut lines = vec![
            cli.command(["version"]),
            cli.create("n", "image:tag", &resources)
                .args(["/work", "/guest:ro"]),
            cli.command(["exec", "-i", "n"]).args(["sh", "-c", "echo it"]),
            cli.command(["stop", "n"]),
            cli.remove("n"),
        ];
        lines.extend(rules.iter().flat_map(|rules| cli.restrict("n", rules)));
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(cli.name(), lines.join("\n"));
    }
}
