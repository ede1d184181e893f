//! The network policy knows the line that each of its decisions comes from.

use rstest::rstest;

use super::*;
use crate::network::{ConfigDirectory, PackageConfig, PolicyRequest};

const TOML: &str = "\
[sandbox.network]
allowed = ['a.example', '*.b.example']
presets = ['anthropic', 'packages:npm']
denied = ['bad.b.example']
";

#[rstest]
#[case("a.example:443", "`a.example` (ralph.toml:2:12)")]
#[case("x.b.example:443", "`*.b.example` (ralph.toml:2:25)")]
#[case("bad.b.example:443", "denied by `bad.b.example` (ralph.toml:4:11)")]
#[case("sentry.io:443", "`sentry.io` (preset `anthropic`, ralph.toml:3:12)")]
#[case(
    "npm.corp.example:443",
    "`npm.corp.example` (.npmrc:1, preset `packages:npm`, ralph.toml:3:25)"
)]
#[case("registry.npmjs.org:443", "host not in policy")]
fn a_verdict_names_file_and_line(#[case] target: &str, #[case] expected: &str) {
    let files = [
        ("ralph.toml", TOML),
        (".npmrc", "registry=https://npm.corp.example/"),
    ];
    let project = Project::new(&files);
    let tree = ConfigDirectory(project.dir.path().to_owned());
    let policy = project.load().network_policy(&PackageConfig {
        project: &tree,
        ..PackageConfig::EMPTY
    });
    let (host, port) = target.split_once(':').unwrap();
    let request = PolicyRequest::opaque(host.parse().unwrap(), port.parse().unwrap());
    let said = match policy.judge(&request) {
        Ok(line) => line.to_string(),
        Err(denial) => denial.to_string(),
    };
    let dir = format!("{}/", project.dir.path().display());
    assert_eq!(said.replace(&dir, ""), expected);
}

#[test]
fn hosts_to_inspect_are_part_of_the_policy() {
    let toml = "[sandbox.network]\ninspect = ['a.example', '*.b.example:8443']";
    let policy = Project::new(&[("ralph.toml", toml)])
        .load()
        .network_policy(&PackageConfig::EMPTY);
    assert!(policy.inspects(&"a.example".parse().unwrap(), 443));
    assert!(policy.inspects(&"x.b.example".parse().unwrap(), 8443));
    assert!(!policy.inspects(&"x.b.example".parse().unwrap(), 443));
}

#[test]
fn a_policy_without_lines_denies() {
    let toml = "[sandbox.network]\npolicy = 'allowlist'\nallowed = []";
    let policy = Project::new(&[("ralph.toml", toml)])
        .load()
        .network_policy(&PackageConfig::EMPTY);
    assert!(policy.judge_name(&"github.com".parse().unwrap()).is_err());
}
