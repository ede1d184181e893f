//! The two programs' command lines, and what they print.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::{Activity, Resources};
use super::policy::Rules;
use crate::exec::{Command, Host};

/// The agent that a sandbox is made for: none, a shell.
const AGENT: &str = "shell";

const MEGABYTE: u64 = 1 << 20;

/// Which of the two programs is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `sbx`.
    Sbx,
    /// `docker sandbox`.
    Plugin,
}

impl Dialect {
    /// The one that is used here.
    pub(super) fn here(host: &Host) -> Self {
        if host.has_program("sbx") {
            Self::Sbx
        } else {
            Self::Plugin
        }
    }

    /// The program's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sbx => "sbx",
            Self::Plugin => "docker",
        }
    }

    /// A command of the program.
    pub(super) fn program<const N: usize>(self, args: [&str; N]) -> Command {
        let command = match self {
            Self::Sbx => Command::new("sbx"),
            Self::Plugin => Command::new("docker").arg("sandbox"),
        };
        command.args(args)
    }

    /// Makes a sandbox; what it sees of this machine goes behind it.
    pub(super) fn create(self, name: &str, image: &str, resources: &Resources) -> Command {
        let create = self.program(["create", "--name", name, "-t", image]);
        match self {
            Self::Sbx => create.args(limits(resources)),
            // The image is one of ours, and nowhere else.
            Self::Plugin => create.args(["--pull-template", "never"]),
        }
        .arg(AGENT)
    }

    /// Removes a sandbox.
    pub(super) fn remove(self, name: &str) -> Command {
        match self {
            Self::Sbx => self.program(["rm", "--force", name]),
            Self::Plugin => self.program(["rm", name]),
        }
    }

    /// Lets a sandbox reach what it may, and nothing else.
    pub(super) fn restrict(self, name: &str, rules: &Rules) -> Vec<Command> {
        match self {
            Self::Sbx => of_sbx(name, rules),
            Self::Plugin => vec![of_plugin(name, rules)],
        }
    }
}

fn limits(resources: &Resources) -> Vec<String> {
    let cpus = resources
        .cpu_millis
        .map(|millis| millis.div_ceil(1000).to_string());
    let memory = resources
        .memory_bytes
        .map(|bytes| format!("{}m", bytes / MEGABYTE));
    let flags = [("--cpus", cpus), ("--memory", memory)];
    let given = flags
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    given.flatten().collect()
}

/// Everything is denied from the beginning (`policy init deny-all`), so only what is allowed is said.
fn of_sbx(name: &str, rules: &Rules) -> Vec<Command> {
    let rule = |verb: &str, hosts: &[String]| {
        let command = Dialect::Sbx.program(["policy", verb, "network", "--sandbox", name]);
        (!hosts.is_empty()).then(|| command.arg(hosts.join(",")))
    };
    let everything = ["**".to_owned()];
    let commands = match rules {
        Rules::Nothing => [None, None],
        Rules::Only { hosts, but } => [rule("allow", hosts), rule("deny", but)],
        Rules::Everything { but } => [rule("allow", &everything), rule("deny", but)],
    };
    commands.into_iter().flatten().collect()
}

fn of_plugin(name: &str, rules: &Rules) -> Command {
    let command = Dialect::Plugin.program(["network", "proxy", name, "--policy"]);
    let each = |flag: &'static str, hosts: &[String]| -> Vec<String> {
        hosts
            .iter()
            .flat_map(|host| [flag.to_owned(), host.clone()])
            .collect()
    };
    match rules {
        Rules::Nothing => command.arg("deny"),
        Rules::Only { hosts, but } => command
            .arg("deny")
            .args(each("--allow-host", hosts))
            .args(each("--block-host", but)),
        Rules::Everything { but } => command.arg("allow").args(each("--block-host", but)),
    }
}

/// What `ls --json` prints: `vms` of the one, `sandboxes` of the other. Fields that may be absent are not looked at.
#[derive(Deserialize)]
struct Listing {
    #[serde(alias = "vms")]
    sandboxes: Vec<Machine>,
}

#[derive(Deserialize)]
struct Machine {
    name: String,
    #[serde(default)]
    status: String,
}

/// The sandboxes of a listing.
pub(super) fn machines(text: &str) -> Result<BTreeMap<String, Activity>, serde_json::Error> {
    let listing: Listing = serde_json::from_str(text)?;
    let activity = |status: &str| match status {
        "running" => Activity::Running,
        _ => Activity::Stopped,
    };
    let machines = listing.sandboxes.into_iter();
    Ok(machines.map(|one| (one.name, activity(&one.status))).collect())
}

#[derive(Deserialize)]
struct Templates {
    images: Vec<Template>,
}

#[derive(Deserialize)]
struct Template {
    repository: String,
    tag: String,
}

/// The images that `sbx template ls --json` prints.
pub(super) fn templates(text: &str) -> Result<Vec<String>, serde_json::Error> {
    let templates: Templates = serde_json::from_str(text)?;
    let named = |one: Template| format!("{}:{}", one.repository, one.tag);
    Ok(templates.images.into_iter().map(named).collect())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plugin(r#"{"vms":[{"name":"a","agent":"shell","status":"running","workspaces":["/w"]},{"name":"b","status":"stopped"}]}"#)]
    #[case::sbx(r#"{"sandboxes":[{"name":"a","id":"1","status":"running","workspaces":[]},{"name":"b","status":"stopped","created_at":""}]}"#)]
    fn both_listings_are_read(#[case] text: &str) {
        let machines = machines(text).unwrap();
        let expected = [
            ("a".to_owned(), Activity::Running),
            ("b".to_owned(), Activity::Stopped),
        ];
        assert_eq!(machines, BTreeMap::from(expected));
    }

    #[rstest]
    fn the_command_lines_are_these(#[values(Dialect::Sbx, Dialect::Plugin)] dialect: Dialect) {
        let resources = Resources {
            memory_bytes: Some(8 << 30),
            cpu_millis: Some(3500),
            disk_bytes: None,
        };
        let (hosts, but) = (
            vec!["github.com".to_owned(), "*.crates.io:443".to_owned()],
            vec!["evil.org".to_owned()],
        );
        let rules = [
            Rules::Nothing,
            Rules::Only {
                hosts,
                but: but.clone(),
            },
            Rules::Everything { but },
        ];
        let mut lines = vec![
            dialect.program(["version"]),
            dialect
                .create("n", "image:tag", &resources)
                .args(["/work", "/guest:ro"]),
            dialect.program(["exec", "-i", "n"]).args(["sh", "-c", "echo it"]),
            dialect.program(["stop", "n"]),
            dialect.remove("n"),
        ];
        lines.extend(rules.iter().flat_map(|rules| dialect.restrict("n", rules)));
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(dialect.name(), lines.join("\n"));
    }
}
