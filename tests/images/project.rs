//! A project whose image the binary builds, on the engine of the tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use ralph::agent::actions::ACTIONS;
use ralph::engine::EngineImageReference;
use ralph::image::{BuildEnvironment, BuildSource, ImageBuilder, ImageReference, ImageRequest};
use serde_json::Value;

use super::support;
use super::support::ralph::{Ended, Place, finish};
use super::workshop::{LABEL, Workshop};

/// Stands on whatever `image.base` is, and makes nothing of it: a base that is built in a moment.
pub const THIN: &str = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n";

/// A project layer that copies a file.
pub const COPYING: &str = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY greeting /greeting\n";

pub struct Project {
    pub place: Place,
    pub shop: Workshop,
}

impl Project {
    /// A repository with nothing but a configuration that names a base: a shell, under a name that no registry has.
    pub async fn new() -> Result<Self, String> {
        let project = Self {
            place: Place::new(),
            shop: Workshop::open().await?,
        };
        let loaded = project.shop.load(&project.shop.image(&[]), "base").await.unwrap();
        let base = EngineImageReference::parse(&project.base("base")).unwrap();
        project.shop.engine.tag(&loaded.id, &base).await.unwrap();
        project.configure(base.to_string().as_str(), "");
        project.place.write("thin/Dockerfile", THIN);
        Ok(project)
    }

    /// As [`Project::new`], on a Debian with apt and the user `agent`.
    pub async fn on_debian() -> Result<Self, String> {
        let project = Self::new().await?;
        let debian = imported(&project, "ralph-test-debian:trixie", &[])?;
        let context = tempfile::tempdir().unwrap();
        project.stand_on(debian, context.path(), &format!("RUN {UPDATE}\n"))?;
        Ok(project)
    }

    /// As [`Project::on_debian`], with nearly all that an agent's Dockerfile installs: what is left takes seconds.
    /// `instructions` make a base of it, out of `context`.
    pub async fn on_debian_with_tools(context: &Path, instructions: &str) -> Result<Self, String> {
        let project = Self::new().await?;
        let tools = imported(&project, "ralph-test-tools:trixie", &["tools"])?;
        let probe = format!("RUN {UPDATE} && npm view pnpm version && pip index versions uv\n");
        project.stand_on(tools, context, &(probe + instructions))?;
        Ok(project)
    }

    /// Makes a base of this project's own out of an image that tests share. `instructions` fail where what is installed on
    /// it is out of reach.
    fn stand_on(&self, shared: &str, context: &Path, instructions: &str) -> Result<(), String> {
        let label = &self.shop.name;
        let dockerfile = format!(
            "FROM {shared}\n\
             LABEL {LABEL}={label}\n\
             COPY certificates {CERTIFICATES}\n\
             ENV NODE_EXTRA_CA_CERTS={CERTIFICATES} PIP_CERT={CERTIFICATES}\n\
             {instructions}\
             RUN useradd --create-home --shell /bin/bash agent\n"
        );
        fs::write(context.join("Dockerfile"), dockerfile).unwrap();
        fs::copy(CERTIFICATES, context.join("certificates"))
            .map_err(|error| format!("{CERTIFICATES}: {error}"))?;
        let name = self.base("debian");
        self.build_plainly(context, &name)?;
        self.configure(&name, "");
        Ok(())
    }

    /// Builds a directory with a Dockerfile by the engine's own command.
    fn build_plainly(&self, context: &Path, name: &str) -> Result<(), String> {
        let built = Command::new("docker")
            .env("DOCKER_HOST", self.shop.engine.endpoint().to_string())
            .args(["build", "--quiet", "--no-cache", "--tag", name])
            .arg(context)
            .output()
            .map_err(|error| error.to_string())?;
        if built.status.success() {
            return Ok(());
        }
        Err(format!(
            "{name} could not be made: {}",
            String::from_utf8_lossy(&built.stderr)
        ))
    }

    /// Builds images with the library.
    pub fn builder(&self) -> ImageBuilder {
        ImageBuilder {
            engine: self.shop.engine.clone(),
            environment: BuildEnvironment {
                host: support::engine::host(),
                cache_dir: self.place.home(),
                clock: ralph::clock::system(),
            },
        }
    }

    /// The request of [`Project::try_build`].
    pub fn request(&self) -> ImageRequest {
        ImageRequest {
            source: BuildSource::Dockerfile(self.place.repo().join("thin/Dockerfile")),
            base: Some(ImageReference::parse(&self.base("base")).unwrap()),
            ..ImageRequest::for_project(self.place.repo(), ACTIONS.image)
        }
    }

    /// A name for a base in a registry that does not exist, so that no pull leaves the host.
    pub fn base(&self, tag: &str) -> String {
        format!("127.0.0.1:1/{}", self.shop.tag(tag))
    }

    pub fn configure(&self, base: &str, more: &str) {
        let text = format!("[image]\nbase = \"{base}\"\n{more}\n[agent]\nname = \"actions\"\n");
        self.place.write("ralph.toml", &text);
    }

    /// Writes a file of `.agent-loop/`.
    pub fn write(&self, name: &str, text: &str) {
        self.place.write(&format!(".agent-loop/{name}"), text);
    }

    /// `ralph image build` with these arguments.
    pub fn command(&self, args: &[&str]) -> Command {
        self.image("build", args)
    }

    /// Runs any `ralph image` command on a base that takes no time.
    pub fn try_image(&self, command: &str, args: &[&str]) -> Ended {
        let thin = ["--dockerfile", "thin/Dockerfile"];
        finish(&mut self.image(command, &[&thin, args].concat()))
    }

    /// Any `ralph image` command with these arguments.
    pub fn image(&self, command: &str, args: &[&str]) -> Command {
        let mut command = self.place.ralph(&["image", command]);
        command.args(args);
        Self::with_the_engine(command)
    }

    /// A command that finds the same engine.
    pub fn with_the_engine(mut command: Command) -> Command {
        for name in ["DOCKER_HOST", "XDG_RUNTIME_DIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }

    /// Runs `ralph image build` on a base that takes no time.
    pub fn try_build(&self, args: &[&str]) -> Ended {
        self.try_image("build", args)
    }

    /// Builds the image, and says which one it is and what was done.
    pub fn build(&self, args: &[&str]) -> Built {
        Built::of(&self.try_build(&[&["--json"], args].concat()), "done")
    }

    /// What would be done.
    pub fn plan(&self, args: &[&str]) -> Built {
        Built::of(
            &self.try_build(&[&["--json", "--dry-run"], args].concat()),
            "steps",
        )
    }

    /// What a program of an image prints.
    pub fn run(&self, tag: &str, argv: &[&str]) -> String {
        support::engine::run(&self.shop.engine, tag, argv)
    }

    pub fn docker(&self, args: &[&str]) -> String {
        support::engine::docker(&self.shop.engine, args)
    }

    /// The id of the image under a name.
    pub async fn id(&self, name: &str) -> Option<String> {
        let found = self.shop.engine.image(name).await.unwrap();
        found.map(|image| image.id.to_string())
    }

    pub async fn close(self) {
        self.shop.close().await;
    }
}

/// An image that was built or planned.
#[derive(Debug, PartialEq, Eq)]
pub struct Built {
    pub tag: String,
    /// The steps, by name.
    pub steps: Vec<String>,
}

impl Built {
    pub fn of(ended: &Ended, steps: &str) -> Self {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let value: Value = serde_json::from_str(&ended.stdout).unwrap();
        let steps = value[steps].as_array().unwrap();
        Self {
            tag: value["tag"].as_str().unwrap().to_owned(),
            steps: steps
                .iter()
                .map(|step| step["step"].as_str().unwrap().to_owned())
                .collect(),
        }
    }
}

/// The certificates that the host trusts. Behind a proxy with a certificate of its own, an image must trust it, too.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Fails where Debian's packages are out of reach.
const UPDATE: &str = "apt-get update -o APT::Update::Error-Mode=any";

/// Gives the engine what `make-debian` made, under this name.
fn imported(project: &Project, name: &'static str, kind: &[&str]) -> Result<&'static str, String> {
    if project.docker(&["images", "--quiet", name]).is_empty() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/make-debian");
        let made = Command::new(script).args(kind).output();
        let made = made.map_err(|error| error.to_string())?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            return Err(format!("no Debian to build on could be made: {said}"));
        }
        let archive = String::from_utf8(made.stdout).unwrap();
        project.docker(&["import", archive.trim(), name]);
    }
    Ok(name)
}
