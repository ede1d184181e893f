//! The checks before the first iteration, and what ralph reports when one of them fails.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use ralph::engine::Engine;
use rstest::rstest;

use crate::bench::{Bench, Program, Within, one_session, whole_task};
use crate::need;
use crate::support::engine::{self, docker};
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::{Ended, Place, finish};
use crate::support::skip;

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_run_needs_is_looked_at_when_it_begins_and_when_it_goes_on(
    #[values(Program::Claude, Program::Codex)] program: Program,
) {
    let whole = whole_task();
    let teller = Teller::by(move |asked| match asked.session {
        0 => Turn::refuse(401, "authentication_error"),
        _ => whole[asked.turn].clone(),
    });
    let bench = need!(Bench::within(Within::Sealed, program, teller).await);
    let (name, address) = (program.name(), bench.server.base_url());
    let service = address.trim_end_matches("/v1");
    let ready = [
        "ready: disk space: ".to_owned(),
        format!("ready: gateway for {service}: it answers"),
        format!("ready: credential of {name}: {service} accepts it"),
        "ready: network policy: `allowlist` holds".to_owned(),
        "ready: sandbox: ".to_owned(),
        "ready: git in the sandbox: git version 2".to_owned(),
        "ready: disk space in the sandbox: ".to_owned(),
        format!("ready: agent {name}: "),
    ];
    let ready: Vec<&str> = ready.iter().map(String::as_str).collect();
    let paused = bench.run(&[]);
    paused.expect(3, &ready);
    paused.expect(
        3,
        &["paused: ", "the credential was refused", "put a valid one into"],
    );
    assert_eq!(bench.place.status()["iterations"], 0, "{paused:?}");
    let done = finish(&mut bench.ralph(&["resume"]));
    done.expect(0, &ready).expect(0, &["done: "]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_credential_is_reported_before_any_call(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Container, Within::Sealed)] within: Within,
) {
    let bench = need!(Bench::within(within, program, Teller::of(one_session())).await);
    let variable = program.key_variable();
    let refused = finish(bench.ralph(&["run"]).env(variable, "sk-expired-0123456789"));
    expect_not_begun(
        &refused,
        &[
            &format!("NOT READY: credential of {}: ", program.name()),
            "refused it (HTTP 401)",
            &format!("hint: put a valid one into `{variable}`, then `ralph resume`"),
        ],
    );
    assert_eq!(bench.server.asked().len(), 0);
    finish(&mut bench.ralph(&["resume"])).expect(0, &["done: "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_credential_is_reported_with_where_to_store_it() {
    let bench = need!(Bench::new(Program::Claude, one_session()).await);
    bench.place.write(
        "ralph.toml",
        "[agent]\nname = \"claude\"\n[sandbox]\ntype = \"local\"\n",
    );
    let lacking = finish(bench.ralph(&["run"]).env_remove("ANTHROPIC_API_KEY"));
    expect_not_begun(
        &lacking,
        &[
            "NOT READY: credential of claude: no credential found",
            "hint: store one with `ralph token store`, or set `ANTHROPIC_API_KEY`",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_model_is_reported_before_there_is_a_sandbox() {
    let bench = need!(Bench::new(Program::Claude, one_session()).await);
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    bench.configure_at(&format!("http://{unused_address}"), "");
    let lacking = bench.run(&[]);
    expect_not_begun(
        &lacking,
        &[
            "NOT READY: credential of claude: ",
            "cannot be reached",
            &format!("start the service, or correct its address http://{unused_address}"),
        ],
    );
    assert!(!bench.place.run_dir().join("sandbox").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_missing_in_the_image_is_reported_and_the_sandbox_removed() {
    let bench = need!(Bench::within(Within::Sealed, Program::Claude, Teller::of(one_session())).await);
    let config = fs::read_to_string(bench.place.repo().join("ralph.toml")).unwrap();
    let without: Vec<&str> = config
        .lines()
        .filter(|line| !line.starts_with("mounts = "))
        .collect();
    bench.place.write("ralph.toml", &without.join("\n"));
    let lacking = bench.run(&[]);
    expect_not_begun(
        &lacking,
        &[
            "ready: git in the sandbox: ",
            "NOT READY: agent claude: it does not run in the sandbox: ",
            "hint: use an image that contains it",
        ],
    );
    assert_eq!(bench.sandboxes(), "");
    assert_eq!(bench.server.asked().len(), 0);
}

#[rstest]
#[case::without_git(&["sh", "df"], "NOT READY: git in the sandbox: ", "next: use an image that contains `git`")]
#[case::without_a_shell(&["df"], "NOT READY: sandbox: ", "an image must contain a shell")]
#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_image_is_reported(#[case] programs: &[&str], #[case] message: &str, #[case] next: &str) {
    let image = need!(Image::with(programs).await);
    let place = Place::new();
    place.write(
        "ralph.toml",
        &format!(
            "[agent]\nname = \"custom\"\n[agent.custom]\ncommand = [\"sh\", \"agent.sh\"]\n\
             [sandbox]\ntype = \"docker\"\nimage = \"{}\"\n[sandbox.network]\npolicy = \"deny\"\n",
            image.name
        ),
    );
    let endpoint = image.engine.endpoint().to_string();
    let lacking = finish(place.ralph(&["run"]).env("DOCKER_HOST", endpoint));
    lacking.expect(1, &[message, next]);
    assert!(!lacking.stderr.contains("iteration 1"), "{lacking:?}");
}

#[test]
fn a_sandbox_that_hangs_is_reported_and_not_waited_for() {
    let place = Place::new();
    let bin = place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("sh"), "#!/bin/bash\nexec sleep 600\n").unwrap();
    fs::set_permissions(bin.join("sh"), fs::Permissions::from_mode(0o755)).unwrap();
    place.write("ralph.toml", &custom("sh"));
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let lacking = finish(place.ralph(&["run"]).env("PATH", path));
    expect_not_begun(
        &lacking,
        &["NOT READY: sandbox: it does not answer: ", "timed out"],
    );
}

#[test]
fn a_git_that_does_not_work_is_reported_before_there_is_a_run() {
    let place = Place::new();
    place.write("ralph.toml", &custom("sh"));
    // A shell, and nothing else: no git.
    let bin = place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink("/bin/sh", bin.join("sh")).unwrap();
    let ended = finish(place.ralph(&["run"]).env("PATH", &bin));
    ended.expect(1, &["hint: install git and make sure that it is on the PATH"]);
    assert_eq!(place.runs(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_forbids_the_model_is_reported_with_what_to_allow() {
    let bench = need!(Bench::within(Within::Sealed, Program::Claude, Teller::of(one_session())).await);
    let lacking = finish(
        bench
            .ralph(&["run", "--agent", "cursor"])
            .args(["--set", "agent.dangerously_pass_credential=true"])
            .env("CURSOR_API_KEY", "key_0123456789abcdef"),
    );
    expect_not_begun(
        &lacking,
        &[
            "NOT READY: network of cursor: the policy denies `**.cursor.sh`",
            "hint: add \"**.cursor.sh\" to sandbox.network.allowed",
        ],
    );
}

/// Fails unless the run ended with a failure before any iteration, with all of this said.
fn expect_not_begun(ended: &Ended, said: &[&str]) {
    ended.expect(1, &["ralph: not ready to begin: "]).expect(1, said);
    assert!(!ended.stderr.contains("iteration 1"), "{ended:?}");
}

fn custom(program: &str) -> String {
    format!(
        "[agent]\nname = \"custom\"\n[agent.custom]\ncommand = [\"{program}\"]\n\
         [sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n"
    )
}

/// An image with a few programs of busybox and nothing else; removed when dropped.
struct Image {
    engine: Engine,
    name: String,
}

impl Image {
    async fn with(programs: &[&str]) -> Result<Self, String> {
        let engine = engine::engine().await?;
        let busybox = skip::program("busybox")?;
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("root/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::copy(busybox, bin.join("busybox")).unwrap();
        for program in programs {
            symlink("busybox", bin.join(program)).unwrap();
        }
        let archive = dir.path().join("image.tar");
        pack(&dir.path().join("root"), &archive);
        let name = format!("ralph-test-preflight:{}", fastrand::u64(..));
        docker(&engine, &["import", archive.to_str().unwrap(), &name]);
        Ok(Self { engine, name })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        docker(&self.engine, &["image", "rm", "--force", &self.name]);
    }
}

fn pack(root: &Path, archive: &Path) {
    let mut tar = Command::new("tar");
    let tar = tar.args(["--create", "--file"]).arg(archive);
    let packed = tar.arg("--directory").arg(root).arg(".").status();
    assert!(packed.unwrap().success());
}
