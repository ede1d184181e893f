//! Plans as tables: a spec, a state of the engine, and the steps.

mod platforms;

use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::agent::{AgentImage, CLAUDE, CODEX};
use crate::image::dependencies::ProjectDependencies;
use crate::image::platform::Platform;
use crate::image::project::ProjectLayerSource;
use crate::image::tag::ProjectName;
use crate::image::{BuildContext, DockerfileContext, HashCache};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The inputs of a plan.
#[derive(Clone)]
struct Case {
    agent: AgentImage,
    platform: Platform,
    base: &'static str,
    digest: &'static str,
    nix: Option<&'static str>,
    dependencies: Option<&'static str>,
    rebuild: Rebuild,
    pulls: PullHistory,
    /// The platform of the base and of the images in the engine.
    found: Option<&'static str>,
    requires_platform: bool,
}

const FRESH: PullHistory = PullHistory::Earlier {
    succeeded: Some(DAY),
    failed: None,
};

fn case() -> Case {
    Case {
        agent: CLAUDE.image,
        platform: Platform::LinuxAmd64,
        base: "debian:12",
        digest: "sha256:1",
        nix: None,
        dependencies: Some("jq"),
        rebuild: Rebuild::WhenNeeded,
        pulls: FRESH,
        found: None,
        requires_platform: false,
    }
}

impl Case {
    fn spec(&self) -> ImageSpec {
        let mode = match self.nix {
            Some(input) => BuildMode::Nix {
                hash: Digest::sha256(input.as_bytes()),
                attribute: "dockerImage".into(),
            },
            None => BuildMode::from_template(self.agent, ImageReference::parse(self.base).unwrap()).unwrap(),
        };
        let project = self.dependencies.map(|text| ProjectLayer {
            name: ProjectName::from_directory("app".as_ref()),
            source: ProjectLayerSource::Dependencies,
            file: DockerfileContext::alone(ProjectDependencies::parse(text).unwrap().dockerfile().unwrap()),
        });
        let spec = ImageSpec::new(self.agent, self.platform, mode, project).unwrap();
        ImageSpec {
            rebuild: self.rebuild,
            requires_platform: self.requires_platform,
            ..spec
        }
    }

    fn state(&self, images: Vec<TaggedImage>) -> EngineState {
        let identity = BaseIdentity::RepoDigest(self.digest.to_owned());
        let pulls = self.pulls;
        let base = Some(BaseImage {
            identity,
            pulls,
            platform: self.found.map(str::to_owned),
        });
        EngineState::Engine { images, base }
    }

    fn plan(&self, images: Vec<TaggedImage>) -> ImagePlan {
        ImagePlan::new(&self.spec(), &self.state(images))
    }

    /// The images that the engine has after the plan was run.
    fn built(&self) -> Vec<TaggedImage> {
        built(&self.plan(Vec::new()))
    }
}

fn built(plan: &ImagePlan) -> Vec<TaggedImage> {
    let image = |image: &PlannedImage, layers: &[&str]| TaggedImage {
        tag: image.tag.to_string(),
        labels: image.labels.clone(),
        layers: layers.iter().map(|layer| (*layer).to_owned()).collect(),
        platform: Some("linux/amd64".to_owned()),
    };
    let made = plan.steps.iter().filter_map(|step| match &step.action {
        ImageAction::BuildBase { image: base } | ImageAction::Load { image: base } => {
            Some(image(base, &["l1", "l2"]))
        }
        ImageAction::BuildProject { image: project, .. } => Some(image(project, &["l1", "l2", "l3"])),
        ImageAction::PullBase { .. } | ImageAction::NixBuild { .. } => None,
    });
    made.collect()
}

/// The steps in short: what is done and why.
fn steps(plan: &ImagePlan) -> Vec<(&'static str, StepReason)> {
    let short = |step: &ImageStep| {
        let name = match step.action {
            ImageAction::PullBase { .. } => "pull",
            ImageAction::BuildBase { .. } => "base",
            ImageAction::NixBuild { .. } => "nix",
            ImageAction::Load { .. } => "load",
            ImageAction::BuildProject { .. } => "project",
        };
        (name, step.reason.clone())
    };
    plan.steps.iter().map(short).collect()
}

#[test]
fn the_first_plan_builds_the_base_and_the_project_on_it() {
    let plan = case().plan(Vec::new());
    assert_eq!(
        steps(&plan),
        [
            ("base", StepReason::FirstImage),
            ("project", StepReason::FirstImage)
        ]
    );
    let ImageAction::BuildBase { image: base } = &plan.steps[0].action else {
        panic!("{plan}");
    };
    assert!(matches!(&plan.steps[1].action, ImageAction::BuildProject { base: tag, .. } if *tag == base.tag));
    assert_eq!(base.tag.repository(), "agent-loop-sandbox-claude");
    assert_eq!(plan.image.tag.repository(), "agent-loop-sandbox-claude-app");
}

#[rstest]
#[case::dockerfile_and_project(case())]
#[case::without_a_project(Case { dependencies: None, ..case() })]
#[case::nix(Case { nix: Some("flake"), dependencies: None, ..case() })]
fn an_image_that_is_there_needs_nothing(#[case] case: Case) {
    let plan = case.plan(case.built());
    assert_eq!(plan.steps, []);
    assert!(!plan.is_provisional());
}

#[rstest]
#[case::agent(Case { agent: CODEX.image, ..case() }, &["base", "project"])]
#[case::base_digest(Case { digest: "sha256:2", ..case() }, &["base", "project"])]
#[case::base_reference(Case { base: "debian:13", ..case() }, &["base", "project"])]
#[case::platform(Case { platform: Platform::LinuxArm64, ..case() }, &["base", "project"])]
#[case::nix(Case { nix: Some("flake"), dependencies: None, ..case() }, &["nix", "load"])]
#[case::dependency(Case { dependencies: Some("jq\ncurl"), ..case() }, &["project"])]
#[case::no_dependency(Case { dependencies: None, ..case() }, &[])]
fn what_changed_is_built_under_another_tag(#[case] changed: Case, #[case] expected: &[&str]) {
    let before = case().plan(Vec::new());
    let after = changed.plan(built(&before));
    assert_ne!(after.image.tag, before.image.tag);
    let names: Vec<&str> = steps(&after).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_changed_comment_changes_nothing() {
    let commented = Case {
        dependencies: Some("# why\njq # JSON\n"),
        ..case()
    };
    assert_eq!(commented.plan(case().built()), case().plan(case().built()));
}

#[test]
fn a_changed_copy_source_is_built_under_another_tag() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(".agent-loop");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("Dockerfile.sandbox"),
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY a /a\n",
    )
    .unwrap();
    let cache = HashCache::new(dir.path().join("cache"), crate::clock::system());
    let planned = |content: &str, images: Vec<TaggedImage>| {
        std::fs::write(folder.join("a"), content).unwrap();
        let layer = ProjectLayer::read(dir.path(), &cache).unwrap();
        let mode = case().spec().mode;
        let spec = ImageSpec::new(CLAUDE.image, Platform::LinuxAmd64, mode, layer).unwrap();
        ImagePlan::new(&spec, &case().state(images))
    };
    let first = planned("1", Vec::new());
    assert_eq!(planned("1", built(&first)).steps, []);
    let second = planned("2", built(&first));
    assert_eq!(steps(&second), [("project", StepReason::ContentChanged)]);
    assert_ne!(second.image.tag, first.image.tag);
}

#[rstest]
#[case::one_day(FRESH, None)]
#[case::just_now(PullHistory::JustTried, None)]
#[case::over_a_week(PullHistory::Earlier { succeeded: Some(DAY * 8), failed: None }, Some(StepReason::PulledLongAgo { ago: DAY * 8, limit: DAY * 7 }))]
#[case::never(PullHistory::Earlier { succeeded: None, failed: None }, Some(StepReason::NeverPulled))]
#[case::failed_a_minute_ago(PullHistory::Earlier { succeeded: Some(DAY * 8), failed: Some(Duration::from_secs(60)) }, None)]
#[case::failed_yesterday(PullHistory::Earlier { succeeded: None, failed: Some(DAY) }, Some(StepReason::NeverPulled))]
fn a_base_is_pulled_when_the_last_pull_is_old(
    #[case] pulls: PullHistory,
    #[case] expected: Option<StepReason>,
) {
    let case = Case { pulls, ..case() };
    let plan = case.plan(
        Case {
            pulls: FRESH,
            ..case.clone()
        }
        .built(),
    );
    let expected: Vec<_> = expected.into_iter().map(|reason| ("pull", reason)).collect();
    assert_eq!(steps(&plan), expected);
    assert!(plan.steps.iter().all(|step| step.on_failure == OnFailure::GoOn));
    assert_eq!(plan.is_provisional(), !expected.is_empty());
}

#[test]
fn the_age_of_a_pull_is_configurable() {
    let facts = case().state(case().built());
    let spec = ImageSpec {
        refresh_after: DAY / 2,
        ..case().spec()
    };
    assert_eq!(steps(&ImagePlan::new(&spec, &facts)).len(), 1);
}

#[rstest]
#[case::made_on_this_host("debian:12", BaseIdentity::Layers(Digest::sha256(b"")))]
#[case::pinned_by_its_digest("debian@sha256:1111111111111111111111111111111111111111111111111111111111111111", BaseIdentity::RepoDigest("sha256:1".into()))]
fn a_base_that_no_pull_can_change_is_not_pulled(#[case] base: &'static str, #[case] identity: BaseIdentity) {
    let pulls = PullHistory::Earlier {
        succeeded: None,
        failed: None,
    };
    let base_image = Some(BaseImage {
        identity,
        pulls,
        platform: Some("linux/arm64".to_owned()),
    });
    let facts = EngineState::Engine {
        images: Vec::new(),
        base: base_image,
    };
    let plan = ImagePlan::new(&Case { base, ..case() }.spec(), &facts);
    assert!(!plan.is_provisional(), "{plan}");
}

#[test]
fn a_missing_base_must_be_pulled_before_anything_is_known() {
    let facts = EngineState::Engine {
        images: Vec::new(),
        base: None,
    };
    let plan = ImagePlan::new(&case().spec(), &facts);
    assert_eq!(steps(&plan)[0], ("pull", StepReason::BaseMissing));
    assert_eq!(plan.steps[0].on_failure, OnFailure::Stop);
    assert!(plan.is_provisional());
    assert_eq!(plan.base.unwrap().identity, BaseIdentity::Unresolved);
}

#[test]
fn without_an_engine_everything_is_planned_for_an_unresolved_base() {
    let plan = ImagePlan::new(&case().spec(), &EngineState::NoEngine);
    let expected = ["pull", "base", "project"].map(|name| (name, StepReason::NoEngine));
    assert_eq!(steps(&plan), expected);
    assert_eq!(plan.image.labels[labels::BASE], "unresolved");
}

#[test]
fn a_rebuild_pulls_and_builds_everything_once() {
    let rebuild = Case {
        rebuild: Rebuild::Always,
        ..case()
    };
    let asked = |name| (name, StepReason::RebuildRequested);
    assert_eq!(
        steps(&rebuild.plan(case().built())),
        [asked("pull"), asked("base"), asked("project")]
    );
    let pulled = Case {
        pulls: PullHistory::JustTried,
        ..rebuild.clone()
    };
    assert_eq!(
        steps(&pulled.plan(case().built())),
        [asked("base"), asked("project")]
    );
    let nix = Case {
        nix: Some("flake"),
        dependencies: None,
        ..rebuild
    };
    assert_eq!(
        steps(&nix.plan(nix.built())),
        [asked("nix"), ("load", StepReason::Follows)]
    );
}

#[test]
fn a_base_that_was_rebuilt_alone_takes_the_project_along() {
    let mut images = case().built();
    images[0].layers = vec!["l1".into(), "another".into()];
    assert_eq!(
        steps(&case().plan(images)),
        [("project", StepReason::BaseRebuilt)]
    );
}

#[test]
fn a_project_image_does_not_need_the_tag_of_its_base() {
    let images = case().built().split_off(1);
    assert_eq!(case().plan(images).steps, []);
}

#[test]
fn an_image_that_only_has_our_name_is_replaced() {
    let mut images = case().built();
    images[1].labels = BTreeMap::new();
    assert_eq!(
        steps(&case().plan(images)),
        [("project", StepReason::HashMismatch)]
    );
}

#[test]
fn an_image_is_labelled_with_what_it_was_made_from() {
    let plan = case().plan(Vec::new());
    let labels: Vec<_> = plan
        .image
        .labels
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let hash = plan.image.hash.hex();
    let expected = [
        (labels::AGENT, "claude"),
        (labels::BASE, "sha256:1"),
        (labels::HASH, &*hash),
        (labels::MODE, "template"),
        (labels::PROJECT, "app"),
        (labels::VERSION, env!("CARGO_PKG_VERSION")),
    ];
    assert_eq!(labels, expected);
    assert_eq!(plan.image.tag.version(), format!("v{}", &hash[..8]));
}

#[test]
fn packages_for_apt_on_a_nix_image_are_an_error_that_points_to_packages() {
    let mode = BuildMode::Nix {
        hash: Digest::sha256(b""),
        attribute: "dockerImage".into(),
    };
    let layer = case().spec().project;
    let error = ImageSpec::new(CLAUDE.image, Platform::LinuxAmd64, mode, layer).unwrap_err();
    assert!(error.to_string().contains("`dockerImage`"), "{error}");
    assert!(error.hint().unwrap().contains("`packages`"));
}

#[test]
fn a_dockerfile_goes_on_top_of_a_nix_image() {
    let mode = BuildMode::Nix {
        hash: Digest::sha256(b""),
        attribute: "dockerImage".into(),
    };
    let dir = tempfile::tempdir().unwrap();
    let cache = HashCache::new(dir.path().join("cache"), crate::clock::system());
    let layer = ProjectLayer {
        name: ProjectName::from_directory("app".as_ref()),
        source: ProjectLayerSource::Dockerfile,
        file: DockerfileContext {
            context: BuildContext::read(dir.path(), &[], &cache).unwrap(),
            ..DockerfileContext::alone(String::new())
        },
    };
    let spec = ImageSpec::new(CLAUDE.image, Platform::LinuxAmd64, mode, Some(layer)).unwrap();
    let names: Vec<&str> = steps(&ImagePlan::new(&spec, &case().state(Vec::new())))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["nix", "load", "project"]);
}

#[test]
fn a_person_can_read_a_plan() {
    let old = PullHistory::Earlier {
        succeeded: Some(DAY * 9),
        failed: None,
    };
    let plan = Case { pulls: old, ..case() }.plan(Vec::new());
    let ImageAction::BuildProject { image, base } = &plan.steps[2].action else {
        panic!("{plan}");
    };
    let expected = format!(
        "\
image: {tag}
base: debian:12 (sha256:1)
1. pull debian:12: the last pull was 9 days ago (limit 7 days); if this fails, the existing image is used
2. build {base}: it does not exist yet
3. build {tag} on {base}: it does not exist yet
note: the pull may change the tag and the later steps
",
        tag = image.tag
    );
    assert_eq!(plan.to_string(), expected);
    let hit = case().plan(case().built()).to_string();
    assert!(
        hit.ends_with("\nnothing to do: the image is up to date\n"),
        "{hit}"
    );
}

#[test]
fn a_program_can_read_a_plan() {
    let nix = Case {
        nix: Some("flake"),
        dependencies: None,
        ..case()
    };
    let plan = nix.plan(Vec::new());
    let (tag, hash) = (plan.image.tag.to_string(), plan.image.hash.hex());
    let expected = serde_json::json!({
        "tag": tag,
        "hash": hash,
        "labels": {
            "ralph.image.agent": "claude",
            "ralph.image.hash": hash,
            "ralph.image.mode": "nix",
            "ralph.version": env!("CARGO_PKG_VERSION"),
        },
        "base": null,
        "provisional": false,
        "steps": [
            {
                "step": "nix-build",
                "attribute": "dockerImage",
                "system": "x86_64-linux",
                "reason": "it does not exist yet",
                "on_failure": "stop",
            },
            { "step": "load", "tag": tag, "reason": "it was just built", "on_failure": "stop" },
        ],
    });
    assert_eq!(serde_json::to_value(&plan).unwrap(), expected);
    let project = serde_json::to_value(case().plan(Vec::new())).unwrap();
    assert_eq!(project["base"]["identity"], "sha256:1");
    assert_eq!(project["steps"][1]["step"], "build-project");
}
