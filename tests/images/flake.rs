//! `ralph image build` from a flake, by the real Nix.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::project::{Built, Project};
use super::support::nix;
use super::support::ralph::{Ended, finish};
use crate::need;

/// A project whose flake is the fixture, with content that no other test has.
pub struct FlakeProject {
    pub project: Project,
    built: Vec<String>,
}

impl FlakeProject {
    pub async fn new() -> Result<Self, String> {
        nix::with_own_store()?;
        let project = Project::new().await?;
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nix-image");
        for name in ["flake.nix", "build-image.sh"] {
            let text = fs::read_to_string(fixture.join(name)).unwrap();
            project.place.write(name, &text);
        }
        let new = Self {
            project,
            built: Vec::new(),
        };
        new.say("first");
        Ok(new)
    }

    /// Changes the file that is the image's second layer.
    fn say(&self, text: &str) {
        let salt = &self.project.shop.name;
        self.project
            .place
            .write("payload.txt", &format!("{text} {salt}\n"));
        self.project.place.git(&["add", "--all"]);
    }

    /// Lets a file of a package be the image's second layer. `script` builds the package.
    pub fn with_package(&self, script: &str, file: &str) {
        let package = format!(
            "(derivation {{ name = \"package\"; inherit system; builder = \"/bin/sh\"; PATH = \"/usr/bin:/bin\"; \
             args = [\"-euc\" ''{script}'']; salt = \"{}\"; }})",
            self.project.shop.name
        );
        self.edit(
            "payload = ./payload.txt;",
            &format!("payload = \"${{{package}}}/{file}\";"),
        );
    }

    /// Replaces a part of the flake.
    pub fn edit(&self, part: &str, other: &str) {
        let text = fs::read_to_string(self.project.place.repo().join("flake.nix")).unwrap();
        let changed = text.replace(part, other);
        assert_ne!(text, changed);
        self.project.place.write("flake.nix", &changed);
        self.project.place.git(&["add", "--all"]);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.project.command(args);
        command.env("NIX_CONFIG", nix::CONFIG);
        command
    }

    pub fn try_build(&self, args: &[&str]) -> Ended {
        finish(&mut self.command(args))
    }

    pub fn build(&mut self) -> (Built, Ended) {
        let ended = self.try_build(&["--json"]);
        let built = Built::of(&ended, "done");
        self.built.push(built.tag.clone());
        (built, ended)
    }

    pub async fn close(self) {
        for tag in &self.built {
            self.project.shop.engine.remove_image(tag).await.unwrap();
        }
        self.project.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flakes_image_is_built_and_loaded_and_runs() {
    let mut flake = need!(FlakeProject::new().await);
    let (first, _) = flake.build();
    assert_eq!(first.steps, ["nix-build", "load"]);
    assert!(first.tag.starts_with("agent-loop-sandbox-actions:v"), "{first:?}");
    let said = |tag: &str| flake.project.run(tag, &["cat", "/etc/payload"]);
    assert_eq!(said(&first.tag), format!("first {}\n", flake.project.shop.name));
    let image = flake
        .project
        .shop
        .engine
        .image(&first.tag)
        .await
        .unwrap()
        .unwrap();
    assert!(image.labels["ralph.image.hash"].starts_with(first.tag.rsplit_once(":v").unwrap().1));

    flake.say("second");
    let (second, ended) = flake.build();
    assert_eq!(second.steps, ["nix-build", "load"]);
    assert_ne!(second.tag, first.tag);
    ended.expect(0, &["sent 1 of 2 layers"]);
    let said = |tag: &str| flake.project.run(tag, &["cat", "/etc/payload"]);
    assert!(said(&second.tag).starts_with("second ") && said(&first.tag).starts_with("first "));
    flake.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_there_starts_no_nix() {
    let mut flake = need!(FlakeProject::new().await);
    let (first, _) = flake.build();
    let bin = flake.project.place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("nix"), "#!/bin/sh\necho nix was started >&2\nexit 99\n").unwrap();
    fs::set_permissions(bin.join("nix"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let again = finish(flake.command(&[]).env("PATH", &path));
    assert_eq!(again.expect(0, &["nothing to do"]).stdout.trim(), first.tag);

    flake.say("something else");
    let other = finish(flake.command(&[]).env("PATH", &path));
    other.expect(1, &["nix was started"]);
    flake.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_by_nix_that_fails_names_its_log() {
    let flake = need!(FlakeProject::new().await);
    flake
        .project
        .place
        .write("build-image.sh", "echo the reason\nexit 7\n");
    flake.project.place.git(&["add", "--all"]);
    let ended = flake.try_build(&[]);
    ended.expect(
        1,
        &[
            "cannot build `packages.",
            "the reason",
            "the full log is in `",
            "hint: ",
        ],
    );
    let after = ended.stderr.split("ralph: cannot build").nth(1).unwrap();
    assert!(!after.contains("the reason"), "the log is shown twice: {ended:?}");
    assert_eq!(ended.stdout, "");
    flake.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_flake_can_be_named() {
    let flake = need!(FlakeProject::new().await);
    let plan = |args: &[&str]| {
        let ended = flake.try_build(&[&["--dry-run", "--json"], args].concat());
        Built::of(&ended, "steps")
    };
    assert_eq!(plan(&["--flake", ".#dockerImage"]), plan(&[]));
    assert_eq!(plan(&["--flake", "."]), plan(&[]));
    flake
        .try_build(&["--flake", ".#other"])
        .expect(1, &["has no `packages.", ".other`", "hint: `nix flake show`"]);
    assert_eq!(plan(&["--dockerfile"]).steps, ["build-base"]);
    flake.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flake_that_cannot_be_used_is_passed_over_aloud() {
    let flake = need!(FlakeProject::new().await);
    let set = ["--dry-run", "--set", "image.nix.attribute=other"];
    flake
        .try_build(&set)
        .expect(0, &["flake.nix is not used: it has no `packages."]);
    let mut command = flake.command(&["--dry-run"]);
    finish(command.env("PATH", "/nowhere")).expect(0, &["flake.nix is not used: nix is not installed"]);
    flake
        .project
        .place
        .git(&["rm", "--quiet", "--cached", "flake.nix"]);
    flake
        .try_build(&["--dry-run"])
        .expect(0, &["flake.nix is not used: git does not track it"]);
    flake.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_for_apt_on_an_image_of_nix_are_refused() {
    let flake = need!(FlakeProject::new().await);
    flake.project.write("dependencies", "jq\n");
    let said = "lists apt packages, but the Nix image `dockerImage` has no apt";
    flake
        .try_build(&["--dry-run"])
        .expect_refused(&[said, "hint: list them in `packages`"]);
    flake.close().await;
}
