//! `ralph image build` where nothing must be done, against the two builds it replaces, which have nothing to do either.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph::exec::Command;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{LABEL, Stage, tag, write_file};

const RALPH: &str = env!("CARGO_BIN_EXE_ralph");
const ROUNDS: usize = 30;
/// The base of an agent takes minutes to build; what nothing must be done for can be as thin as this.
const BASE: &str = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n";
const LAYER: &str = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY files /files\n";
const FILE: u64 = 2_000_000;
const NIX_CONFIG: &str =
    "experimental-features = nix-command flakes\nsandbox = false\nbuild-users-group =\nsubstituters =\n";

/// A base and a project layer of one small file.
pub(crate) async fn small(stage: &Stage) -> Fallible<Vec<Figure>> {
    let (ours, peer) = compare(stage, "small", &[1000]).await?;
    let figure = |name, target| Figure {
        name,
        unit: "ms",
        at: MEDIAN,
        ours: ours.clone(),
        peer: Some(PeerSamples::new("two docker builds", &peer)),
        target,
    };
    Ok(vec![
        figure("no-op-small", Target::Most(10.0)),
        figure("no-op-small-to-docker", Target::Ratio(0.2)),
    ])
}

/// A base and a project layer with a build context of 200 MB.
pub(crate) async fn large(stage: &Stage) -> Fallible<Vec<Figure>> {
    let (ours, peer) = compare(stage, "large", &[FILE; 100]).await?;
    Ok(vec![Figure {
        name: "no-op-200-mb",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("two docker builds", &peer)),
        target: Target::Ratio(0.2),
    }])
}

/// The image of a flake, which is found to be there without starting `nix`.
pub(crate) async fn flake(stage: &Stage) -> Fallible<Vec<Figure>> {
    let project = Project::new(stage, "flake").await?;
    project.copy_flake()?;
    stage.git(&project.dir, &["add", "--all"]).await?;
    // Nix remembers what it has evaluated only of a commit.
    let person = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
    let commit = ["commit", "--quiet", "--message", "Add the flake"];
    stage.git(&project.dir, &[&person[..], &commit].concat()).await?;
    let starts = project.watch_nix(stage).await?;
    stage.run(&project.ralph(&[])).await?;
    let before = fs::read_to_string(&starts)?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..quick::rounds(ROUNDS) {
        ours.push(project.no_op(stage, &[]).await?);
        peer.push(project.nix_build(stage).await?);
    }
    let image = stage.run(&project.ralph(&[])).await?.0;
    stage.engine.remove_image(image.trim()).await?;
    stage.clean().await?;
    if before.is_empty() || fs::read_to_string(&starts)? != before {
        return Err("`nix` was started for an image that is there, or never for one that was not".into());
    }
    let (ours, peer) = (Samples::milliseconds(ours), Samples::milliseconds(peer));
    println!("no-op of a flake, ms: {ours}; nix build {peer}");
    Ok(vec![Figure {
        name: "no-op-flake",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("nix build", &peer)),
        target: Target::Most(10.0),
    }])
}

/// Measures a project whose build context has files of these sizes.
async fn compare(stage: &Stage, name: &str, sizes: &[u64]) -> Fallible<(Samples, Samples)> {
    let project = Project::new(stage, name).await?;
    project.write("base/Dockerfile", BASE)?;
    project.write(".agent-loop/Dockerfile.sandbox", LAYER)?;
    for (number, size) in sizes.iter().enumerate() {
        let path = project.dir.join(format!(".agent-loop/files/{number}"));
        write_file(&path, number as u64, *size)?;
    }
    let thin = ["--dockerfile", "base/Dockerfile"];
    stage.run(&project.ralph(&thin)).await?;
    project.docker_builds(stage).await?;
    // A file that changed a moment ago is not remembered.
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.run(&project.ralph(&thin)).await?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..quick::rounds(ROUNDS) {
        ours.push(project.no_op(stage, &thin).await?);
        peer.push(project.docker_builds(stage).await?);
    }
    stage.clean().await?;
    let (ours, peer) = (Samples::milliseconds(ours), Samples::milliseconds(peer));
    println!("no-op, {name} context, ms: ours {ours}; two docker builds {peer}");
    Ok((ours, peer))
}

/// A repository with a configuration that names a base in a registry that does not exist.
struct Project {
    dir: PathBuf,
    home: PathBuf,
    base: String,
    /// Where programs are found before all others.
    bin: PathBuf,
}

impl Project {
    async fn new(stage: &Stage, name: &str) -> Fallible<Self> {
        let project = Self {
            dir: stage.path(&format!("bench-{}-{name}", std::process::id())),
            home: stage.path(&format!("home-{name}")),
            base: format!("127.0.0.1:1/{}", tag("base")),
            bin: stage.path(&format!("bin-{name}")),
        };
        fs::create_dir_all(&project.dir)?;
        fs::create_dir_all(&project.bin)?;
        stage.git(&project.dir, &["init", "--quiet"]).await?;
        let config = format!(
            "[image]\nbase = \"{}\"\n[agent]\nname = \"actions\"\n",
            project.base
        );
        project.write("ralph.toml", &config)?;
        let empty = stage.path("empty.tar");
        fs::write(&empty, [0; 1024])?;
        let label = format!("LABEL {LABEL}={}", std::process::id());
        let (path, base) = (empty.to_string_lossy(), project.base.as_str());
        let import = stage.docker().args(["import", "--change", &label, &path, base]);
        stage.run(&import).await?;
        Ok(project)
    }

    fn write(&self, path: &str, text: &str) -> Fallible<()> {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&self.dir))?;
        Ok(fs::write(path, text)?)
    }

    fn copy_flake(&self) -> Fallible<()> {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nix-image");
        for file in fs::read_dir(fixture)? {
            let file = file?;
            fs::copy(file.path(), self.dir.join(file.file_name()))?;
        }
        Ok(())
    }

    /// Has every start of `nix` written down, and says where.
    async fn watch_nix(&self, stage: &Stage) -> Fallible<PathBuf> {
        let starts = self.bin.join("starts");
        let found = stage.run(&Command::shell("command -v nix")).await?.0;
        let (watcher, nix) = (self.bin.join("nix"), found.trim());
        let text = format!(
            "#!/bin/sh\necho \"$*\" >>'{}'\nexec '{nix}' \"$@\"\n",
            starts.display()
        );
        fs::write(&watcher, text)?;
        fs::write(&starts, "")?;
        let path = watcher.to_string_lossy().into_owned();
        stage.run(&Command::new("chmod").args(["+x", &path])).await?;
        Ok(starts)
    }

    /// `ralph image build` with these arguments.
    fn ralph(&self, args: &[&str]) -> Command {
        let start = format!("PATH=\"{}:$PATH\" exec \"$0\" \"$@\"", self.bin.display());
        Command::new("sh")
            .args(["-c", &start, RALPH, "image", "build"])
            .args(args.iter().copied())
            .cwd(&self.dir)
            .env("RALPH_HOME", self.home.to_string_lossy())
            .env("NIX_CONFIG", NIX_CONFIG)
    }

    /// How long `ralph image build` takes to find that nothing is to be done.
    async fn no_op(&self, stage: &Stage, args: &[&str]) -> Fallible<Duration> {
        let command = self.ralph(&[&["--json"], args].concat());
        let (printed, spent) = stage.run(&command).await?;
        let report: serde_json::Value = serde_json::from_str(&printed)?;
        if report["done"].as_array().is_some_and(Vec::is_empty) {
            return Ok(spent);
        }
        Err(format!("something was done: {report}").into())
    }

    /// How long Nix takes to find that the flake's image is there. It does not ask the engine.
    async fn nix_build(&self, stage: &Stage) -> Fallible<Duration> {
        let command = Command::new("nix")
            .args(["build", "--no-link", ".#dockerImage"])
            .cwd(&self.dir)
            .env("NIX_CONFIG", NIX_CONFIG);
        Ok(stage.run(&command).await?.1)
    }

    /// Both builds, one after the other, as a script would have them done.
    async fn docker_builds(&self, stage: &Stage) -> Fallible<Duration> {
        let (base, layer) = (tag("base-peer"), tag("layer-peer"));
        let built = self.docker_build(stage, ["base/Dockerfile", "base"], [&self.base, &base]);
        let on_top = [".agent-loop/Dockerfile.sandbox", ".agent-loop"];
        Ok(built.await? + self.docker_build(stage, on_top, [&base, &layer]).await?)
    }

    async fn docker_build(&self, stage: &Stage, files: [&str; 2], images: [&str; 2]) -> Fallible<Duration> {
        let ([dockerfile, context], [base, tag]) = (files, images);
        let base = format!("BASE_IMAGE={base}");
        let command = stage
            .docker()
            .args(["build", "--quiet", "--build-arg", &base, "--tag", tag])
            .args(["--file", dockerfile, context])
            .cwd(&self.dir);
        Ok(stage.run(&command).await?.1)
    }
}
