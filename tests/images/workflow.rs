//! The workflow that a project copies from docs/ci, step by step, with the real Nix.

use std::path::Path;

use super::flake::FlakeProject;
use super::project::Project;
use super::support::nix;
use super::support::ralph::finish;
use crate::need;

/// A development shell without any package; `ralph` comes from the search path around it.
const SHELL: &str = "\
    devShells.x86_64-linux.default = shellFor \"x86_64-linux\";
    devShells.aarch64-linux.default = shellFor \"aarch64-linux\";
";

const SHELL_FOR: &str = "\
    shellFor = system: derivation {
      name = \"shell\";
      inherit system;
      builder = \"/bin/bash\";
      args = [\"-c\" \"echo >$out\"];
      PATH = \"/usr/bin:/bin\";
      outputs = [\"out\"];
    };
";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_workflow_for_projects_succeeds() {
    let mut flake = need!(FlakeProject::new().await);
    flake.edit("  in {\n", &format!("{SHELL_FOR}  in {{\n{SHELL}"));
    flake.build();
    let workflow = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ci/reproducible-image.yml");
    let workflow = std::fs::read_to_string(workflow).unwrap();
    let commands: Vec<&str> = workflow
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- run: "))
        .collect();
    assert!(commands.len() >= 4, "{commands:?}");
    assert!(
        commands
            .iter()
            .any(|command| command.contains("ralph image build --check"))
    );

    let place = &flake.project.place;
    let registry = place.path().join("registry.json");
    std::fs::write(&registry, r#"{"flakes": [], "version": 2}"#).unwrap();
    let config = format!(
        "{}\nexperimental-features = nix-command flakes\nflake-registry = {}",
        nix::CONFIG,
        registry.display()
    );
    for command in commands {
        let ralph = place.ralph(&[]);
        let directory = Path::new(ralph.get_program()).parent().unwrap();
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
        let mut shell = Project::with_the_engine(place.shell(command));
        let ended = finish(shell.env("NIX_CONFIG", &config).env("PATH", path));
        assert_eq!(ended.code, Some(0), "{command}: {ended:?}");
    }
    flake.close().await;
}
