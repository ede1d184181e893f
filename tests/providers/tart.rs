//! Tart: templates, limits, and VMs that do not start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ralph::exec::{Command, Discard, ExitStatus};
use ralph::network::Policy;
use ralph::sandbox::tart::{self, TartOptions};
use ralph::sandbox::{Provider, SandboxError, SandboxErrorKind, SandboxSpec};
use rstest::rstest;

use crate::support::ralph::{Ended, Place, TIMEOUT, finish};
use crate::support::vms::Site;
use crate::support::{base, engine};
use crate::{need, spec, witness};

struct Scene {
    site: Site,
    image: String,
}

impl Scene {
    async fn new() -> Result<Self, String> {
        let image = base::image(&engine::engine().await?).await?;
        let site = Site::with(&["tart"], &image);
        Ok(Self { site, image })
    }

    fn provider(&self, dependencies: &str) -> Arc<dyn Provider> {
        self.provider_with_timeout(dependencies, TartOptions::BOOT_TIMEOUT)
    }

    fn provider_with_timeout(&self, dependencies: &str, boot_timeout: Duration) -> Arc<dyn Provider> {
        let options = TartOptions {
            vm: self.site.options(),
            dependencies: dependencies.to_owned(),
            project: "/project".into(),
            boot_timeout,
        };
        Arc::new(tart::provider(options))
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            network: Policy::allow_all(),
            ..spec(&self.image)
        }
    }

    async fn refused(&self, spec: &SandboxSpec) -> SandboxError {
        match self.provider("").create(spec).await {
            Ok(sandbox) => panic!("{} was made", sandbox.id()),
            Err(error) => error,
        }
    }

    fn vms(&self) -> Vec<String> {
        let dir = std::fs::read_dir(self.site.path("bin/state/vms")).unwrap();
        let names = dir.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| !name.starts_with("agent-loop-template-"))
            .collect()
    }
}

#[tokio::test]
async fn dependencies_are_installed_once() {
    let scene = need!(Scene::new().await);
    let provider = scene.provider("echo \"it's $((1 + 1))\" > /tmp/installed\n");
    for _ in 0..2 {
        let sandbox = provider.create(&scene.spec()).await.unwrap();
        assert_eq!(
            witness(sandbox.as_ref(), "cat /tmp/installed")
                .await
                .stdout
                .text(),
            "it's 2\n"
        );
        sandbox.close().await.unwrap();
    }
    assert_eq!(scene.site.kept("calls").matches("bash -e").count(), 1);
    assert!(scene.vms().is_empty(), "{:?}", scene.vms());
}

#[tokio::test]
async fn a_script_that_fails_leaves_no_template() {
    let scene = need!(Scene::new().await);
    let Err(error) = scene.provider("false\ntrue\n").create(&scene.spec()).await else {
        panic!("it was made")
    };
    assert_eq!(error.kind(), SandboxErrorKind::Failed, "{error:?}");
    assert!(error.to_string().contains("` failed: "), "{error}");
    assert_eq!(
        std::fs::read_dir(scene.site.path("bin/state/vms"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn limits_are_set_in_megabytes() {
    let scene = need!(Scene::new().await);
    let mut spec = scene.spec();
    spec.resources.memory_bytes = Some(6 << 30);
    spec.resources.cpu_millis = Some(3500);
    let sandbox = scene.provider("").create(&spec).await.unwrap();
    let limits = scene.site.kept(&format!("vms/{}/limits", sandbox.id()));
    assert_eq!(limits, "--cpu 4 --memory 6144\n");
    let memory = witness(
        sandbox.as_ref(),
        "cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes",
    )
    .await;
    assert_eq!(memory.stdout.text().trim(), (6_u64 << 30).to_string());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_third_macos_vm_is_refused_and_other_systems_do_not_count() {
    let scene = need!(Scene::new().await);
    let provider = scene.provider("");
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(provider.create(&scene.spec()).await.unwrap());
    }
    let error = scene.refused(&scene.spec()).await;
    let expected = "cannot start VM — 2 macOS VMs already running (Apple SLA permits max 2). Stop an existing VM with: \
                    tart stop <name>";
    assert_eq!(error.to_string(), expected);
    scene.site.put("os", "linux");
    let linux = SandboxSpec {
        purpose: ralph::sandbox::Purpose {
            agent: "other".to_owned(),
            ..Default::default()
        },
        ..scene.spec()
    };
    running.push(provider.create(&linux).await.unwrap());
    for sandbox in running {
        sandbox.close().await.unwrap();
    }
    assert!(scene.vms().is_empty(), "{:?}", scene.vms());
}

#[rstest]
#[case::no_guest_agent("no-agent", Duration::from_secs(3), "is the Tart Guest Agent running?")]
// Fails at once.
#[case::no_vm("boot-fails", TIMEOUT, "the virtual machine failed to start")]
#[tokio::test]
async fn a_vm_that_does_not_start_is_removed_and_the_reason_reported(
    #[case] fault: &str,
    #[case] timeout: Duration,
    #[case] expected: &str,
) {
    let scene = need!(Scene::new().await);
    scene.site.put(fault, "");
    let provider = scene.provider_with_timeout("", timeout);
    let Err(error) = provider.create(&scene.spec()).await else {
        panic!("it was made")
    };
    assert!(error.to_string().contains(expected), "{error}");
    assert!(scene.vms().is_empty(), "{:?}", scene.vms());
}

#[rstest]
#[case::macos("darwin", false)]
#[case::linux("linux", true)]
#[tokio::test]
async fn only_a_linux_vm_runs_the_guest(#[case] os: &str, #[case] expected: bool) {
    let scene = need!(Scene::new().await);
    scene.site.put("os", os);
    let sandbox = scene.provider("").create(&scene.spec()).await.unwrap();
    let exit = sandbox.exec(&Command::shell("echo hello"), &mut Discard).await;
    assert_eq!(exit.unwrap().stdout.text(), "hello\n");
    let calls = scene.site.kept("calls");
    let session = calls.lines().any(|call| call.trim_end().ends_with(" session"));
    assert_eq!(session, expected && ralph::guest::PROGRAM.is_some(), "{calls}");
    let notices = sandbox.notices().join("\n");
    assert_eq!(
        notices.contains("macOS cannot run the guest"),
        !expected,
        "{notices}"
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn commands_run_as_the_user_of_the_guest_agent() {
    let scene = need!(Scene::new().await);
    let sandbox = scene.provider("").create(&scene.spec()).await.unwrap();
    let exit = sandbox
        .exec(&Command::shell("echo $USER"), &mut Discard)
        .await
        .unwrap();
    assert_eq!(exit.stdout.text(), "admin\n");
    assert_eq!(
        witness(sandbox.as_ref(), "echo $USER").await.stdout.text(),
        "admin\n"
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_vm_whose_run_process_exits_is_not_waited_for() {
    let scene = need!(Scene::new().await);
    scene.site.put("run-dies", "");
    let started = std::time::Instant::now();
    let Err(error) = scene.provider("").create(&scene.spec()).await else {
        panic!("it was made")
    };
    assert!(error.to_string().contains("stopped unexpectedly"), "{error}");
    assert!(
        started.elapsed() < TartOptions::BOOT_TIMEOUT / 4,
        "{:?}",
        started.elapsed()
    );
    assert!(scene.vms().is_empty(), "{:?}", scene.vms());
}

#[rstest]
#[case::not_installed(None, "softnet is not installed")]
#[case::without_rights(Some(0o755), "softnet must run as root")]
#[tokio::test]
async fn without_softnet_a_restricted_network_is_refused(
    #[case] installed: Option<u32>,
    #[case] expected: &str,
) {
    let scene = need!(Scene::new().await);
    if let Some(mode) = installed {
        scene.site.install("softnet", mode);
        scene.site.forbid_sudo();
    }
    let error = scene.refused(&spec(&scene.image)).await;
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn a_local_image_that_does_not_exist_is_named() {
    let scene = need!(Scene::new().await);
    let mut spec = scene.spec();
    spec.image = Some("no-such-vm".to_owned());
    let error = scene.refused(&spec).await;
    assert!(error.to_string().contains("tart clone no-such-vm"), "{error}");
}

#[tokio::test]
async fn a_vm_of_the_user_is_never_overwritten() {
    let scene = need!(Scene::new().await);
    let theirs = scene.site.path("bin/state/vms/agent-loop-none-none");
    for name in ["agent-loop-none-none", "agent-loop-none-none-e3b0c442"] {
        let dir = scene.site.path("bin/state/vms").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("os"), "darwin").unwrap();
    }
    let sandbox = scene.provider("").create(&scene.spec()).await.unwrap();
    assert_ne!(sandbox.id(), "agent-loop-none-none");
    sandbox.close().await.unwrap();
    assert!(theirs.join("os").exists());
}

#[tokio::test]
async fn evidence_has_no_variables_in_its_arguments() {
    let scene = need!(Scene::new().await);
    let sandbox = scene.provider("").create(&scene.spec()).await.unwrap();
    let command = Command::shell("printf '%s %s ' \"$PWD\" \"$GIVEN\"; cat; exit 9").cwd("work");
    let command = command.env("GIVEN", "it's\ntwo").stdin(*b"input");
    let exit = sandbox.exec_trusted(&command, &mut Discard).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Code(9));
    let expected = format!("{}/work it's\ntwo input", sandbox.root().display());
    assert_eq!(exit.stdout.text(), expected);
    assert!(!scene.site.kept("calls").contains("two"));
    sandbox.close().await.unwrap();
}

/// All calls of `tart` in the life of a VM.
#[tokio::test]
async fn these_are_its_command_lines() {
    let scene = need!(Scene::new().await);
    let provider = scene.provider("echo installed");
    let mut spec = scene.spec();
    spec.purpose.agent = "claude".to_owned();
    spec.resources.cpu_millis = Some(2000);
    spec.resources.memory_bytes = Some(4 << 30);
    let sandbox = provider.create(&spec).await.unwrap();
    let exit = witness(sandbox.as_ref(), "echo hello").await;
    assert_eq!(exit.stdout.text(), "hello\n");
    let id = sandbox.id().to_owned();
    sandbox.close().await.unwrap();
    insta::assert_snapshot!(normalized_calls(&scene, &id));
}

/// The distinct calls of the program, sorted, with placeholders for variable parts.
fn normalized_calls(scene: &Scene, id: &str) -> String {
    let calls = scene.site.kept("calls").replace(id, "VM");
    let calls = calls.replace(&scene.site.path("").display().to_string(), "SITE/");
    let calls = calls.replace(&scene.image, "IMAGE");
    let hash = regex_lite::Regex::new("template-claude-[0-9a-f]{12}").unwrap();
    let calls = hash.replace_all(&calls, "template-claude-HASH");
    let lines: BTreeSet<&str> = calls.lines().map(str::trim_end).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_vm_whose_run_process_was_killed_is_lost() {
    let scene = need!(Scene::new().await);
    let sandbox = scene.provider("").create(&scene.spec()).await.unwrap();
    let pid = scene.site.kept(&format!("vms/{}/pid", sandbox.id()));
    assert!(
        std::process::Command::new("kill")
            .args(["-9", pid.trim()])
            .status()
            .unwrap()
            .success()
    );
    // While the cached list of VMs is valid, only the command fails.
    let lost = async {
        loop {
            if let Err(error) = sandbox.exec_trusted(&Command::new("true"), &mut Discard).await {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let error = tokio::time::timeout(TIMEOUT, lost).await.unwrap();
    assert!(error.to_string().contains("was lost"), "{error:?}");
    sandbox.close().await.unwrap();
}

/// `ralph` on a host with `tart`, in a project with this script.
fn ralph(scene: &Scene, place: &Place, args: &[&str]) -> Ended {
    let ended = ended(scene, place, args);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

fn ended(scene: &Scene, place: &Place, args: &[&str]) -> Ended {
    let text = format!(
        "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"tart\"\nimage = \"{}\"\n",
        scene.image
    );
    place.write("ralph.toml", &text);
    let mut command = place.ralph(args);
    command.env("PATH", scene.site.search_path());
    if let Ok(engine) = std::env::var("DOCKER_HOST") {
        command.env("DOCKER_HOST", engine);
    }
    finish(&mut command)
}

fn templates(scene: &Scene) -> Vec<String> {
    let dir = std::fs::read_dir(scene.site.path("bin/state/vms")).unwrap();
    let names = dir.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with("agent-loop-template-"))
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_built_listed_rebuilt_and_pruned() {
    let (scene, place) = (need!(Scene::new().await), Place::new());
    place.write(".agent-loop/dependencies", "echo list > /tmp/installed\n");
    let before = ralph(&scene, &place, &["image", "status"]).stdout;
    let planned = before.strip_prefix("planned: ").unwrap().trim_end();
    let first = planned.strip_suffix(", missing").unwrap().to_owned();
    let built = ralph(&scene, &place, &["image", "build"]);
    assert_eq!(built.stdout.trim_end(), first);
    assert_eq!(templates(&scene), vec![first.clone()]);
    let present = ralph(&scene, &place, &["image", "status"]).stdout;
    assert!(present.starts_with(&format!("planned: {first}, present\nplanned  {first}: used ")));

    let installs = || scene.site.kept("calls").matches("bash -e").count();
    assert_eq!(installs(), 1);
    ralph(&scene, &place, &["image", "build"]);
    assert_eq!(installs(), 1, "it was built twice");
    ralph(&scene, &place, &["image", "build", "--rebuild"]);
    assert_eq!((installs(), templates(&scene)), (2, vec![first.clone()]));

    // The script with an ending wins, and what it makes is another template.
    place.write(".agent-loop/dependencies.sh", "echo script > /tmp/installed\n");
    let second = ralph(&scene, &place, &["image", "build"])
        .stdout
        .trim_end()
        .to_owned();
    assert_ne!(first, second);
    // A VM of someone else, with a name like ralph's own.
    let foreign = "agent-loop-template-actions-0123456789ab";
    let vms = scene.site.path("bin/state/vms");
    std::fs::create_dir(vms.join(foreign)).unwrap();
    for file in ["os", "image"] {
        std::fs::copy(vms.join(&second).join(file), vms.join(foreign).join(file)).unwrap();
    }
    let would = ralph(&scene, &place, &["image", "prune", "--dry-run"]);
    assert_eq!(would.stdout, format!("{first}\n"));
    assert_eq!(templates(&scene).len(), 3);
    let pruned = ralph(&scene, &place, &["image", "prune"]);
    assert!(pruned.stderr.contains("removed 1 of 2 templates"), "{pruned:?}");
    let mut left = [foreign.to_owned(), second.clone()];
    left.sort();
    assert_eq!(templates(&scene), left);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_someone_else_made_is_not_rebuilt() {
    let (scene, place) = (need!(Scene::new().await), Place::new());
    place.write(".agent-loop/dependencies", "true\n");
    let built = ralph(&scene, &place, &["image", "build"]).stdout;
    // Without its record it is a VM of someone else.
    let forget = "test -n \"$(find \"$RALPH_HOME\" -name '*.template' -print -delete)\"";
    finish(&mut place.shell(forget)).expect(0, &[]);
    let installs = || scene.site.kept("calls").matches("bash -e").count();
    let before = installs();
    ended(&scene, &place, &["image", "build", "--rebuild"]).expect(
        2,
        &[
            &format!("`{}` cannot be made again", built.trim_end()),
            "`tart delete NAME`",
        ],
    );
    assert_eq!(
        (installs(), templates(&scene)),
        (before, vec![built.trim_end().to_owned()])
    );
}

#[tokio::test]
async fn a_template_that_a_vm_was_cloned_from_is_kept() {
    let scene = need!(Scene::new().await);
    let (old, new) = (scene.provider("true # old\n"), scene.provider("true # new\n"));
    let sandbox = old.create(&scene.spec()).await.unwrap();
    let images = new.images().unwrap();
    let listed = images.list(&scene.spec()).await.unwrap();
    let in_use: Vec<bool> = listed
        .iter()
        .filter(|one| one.is_own)
        .map(|one| one.in_use)
        .collect();
    assert_eq!(in_use, [true], "{listed:?}");
    sandbox.close().await.unwrap();
    let listed = images.list(&scene.spec()).await.unwrap();
    assert!(listed.iter().all(|one| !one.in_use), "{listed:?}");
    let error = images.remove("agent-loop-template-of-someone").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error}");
}
