//! Each step towards a sealed network is the last one: ralph is killed after it, or the holder is. No command of the agent's
//! runs, nothing leaves, and the next start clears up.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ralph::engine::Engine;
use rustix::process::{Signal, getpid, kill_process};

use crate::daemon::Daemon;
use crate::docker_test::{DockerTest, sandbox_dirs};
use crate::elsewhere::Elsewhere;
use crate::need;
use crate::sealed::{Sealed, holder, is_there};
use crate::site::{LEFT_BEHIND, Site};
use crate::steps;
use crate::support::base;
use crate::support::engine::{self, docker};
use crate::support::ralph::{doing, finish, in_place_of, run, script, whole_task};

/// Set only where a process of this test runs ralph in place of the test: the step to end at, and the arguments.
const LAST_STEP: &str = "LAST_STEP";
const ARGUMENTS: &str = "ARGUMENTS";

#[tokio::test]
async fn every_step_is_reported_once_and_in_order() {
    let sealed = need!(Sealed::new().await);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let listening = steps::on_this_thread({
        let reported = reported.clone();
        move |step| reported.lock().unwrap().push(step.to_owned())
    });
    let sandbox = sealed.room.create().await;
    drop(listening);
    sandbox.close().await.unwrap();
    // The sandbox is made while its network is.
    let free = "sandbox-created";
    let in_order = |names: &[String]| {
        names
            .iter()
            .filter(|name| **name != free)
            .cloned()
            .collect::<Vec<_>>()
    };
    let (reported, all) = (reported.lock().unwrap().clone(), steps::ALL.map(str::to_owned));
    assert_eq!(in_order(&reported), in_order(&all));
    assert_eq!(reported.iter().filter(|name| **name == free).count(), 1);
}

#[tokio::test]
async fn ralph_killed_after_any_step_runs_nothing_and_the_next_start_clears_up() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    let elsewhere = need!(Elsewhere::new().await);
    let mut earlier = BTreeSet::new();
    for step in steps::ALL {
        let mut struck = killed_after(step, &site.scripted(&script([doing([run("touch started")])])));
        let ended = finish(struck.env("RALPH_SANDBOX__REUSE_CONTAINER", "false"));
        assert_eq!(ended.code, None, "{step}: {ended:?}");
        assert!(!site.has_started(), "{step}");
        // Of what was left before, the start has cleared up everything.
        let left = site.all_containers();
        assert!(!left.is_empty(), "{step}");
        assert!(left.is_disjoint(&earlier), "{step}: {left:?} {earlier:?}");
        for container in &left {
            assert!(
                is_closed(&site.engine, container, &elsewhere),
                "{step}: {container}"
            );
        }
        elsewhere.check_receives_from_host().await;
        earlier = left;
    }
    finish(&mut site.scripted(&script([whole_task()]))).expect(0, &["done: "]);
    site.expect_nothing_left();
}

/// The process that is killed: ralph itself, with a listener for its steps.
#[test]
fn ralph_itself() {
    let (Ok(last), Ok(arguments)) = (std::env::var(LAST_STEP), std::env::var(ARGUMENTS)) else {
        return;
    };
    steps::everywhere(move |step| {
        if step == last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
    let arguments = arguments.split('\n').map(OsString::from);
    let code = ralph::cli::main_with(std::iter::once("ralph".into()).chain(arguments));
    panic!("it came to its end: {code:?}");
}

#[tokio::test]
async fn a_holder_killed_after_any_step_leaves_no_sandbox_that_is_open() {
    let sealed = need!(Sealed::new().await);
    for last in steps::ALL {
        let spec = &sealed.room.spec;
        let name = format!("agent-loop-test-ralph-{}-net", spec.run);
        let listening = steps::on_this_thread(move |step| {
            if step == last {
                // What does not run yet cannot be killed.
                let verb: &[&str] = match last {
                    "holder-created" => &["rm", "--force"],
                    _ => &["kill"],
                };
                let killed = Command::new("docker").args(verb).arg(&name).output().unwrap();
                assert_eq!(
                    killed.stdout,
                    format!("{name}\n").as_bytes(),
                    "{last}: {killed:?}"
                );
            }
        });
        let made = sealed.room.provider.create(spec).await;
        drop(listening);
        if let Ok(sandbox) = made {
            assert_eq!(last, "proved");
            let verified = sandbox.verify().await;
            assert!(verified.is_err(), "{last}: {verified:?}");
            assert!(sealed.is_closed(sandbox.id()).await, "{last}");
            sandbox.close().await.unwrap();
            assert!(!is_there(&holder(sandbox.as_ref())).await);
        }
        assert_eq!(sandbox_dirs(sealed.room.dir.path()), 0, "{last}");
    }
    assert_eq!(sealed.stand_in.asked(), 0);
}

/// The process that creates the sandbox goes on and creates no other one: nothing later would remove what is left.
#[tokio::test]
async fn an_engine_that_restarts_after_a_step_keeps_nothing_of_the_sandbox() {
    let daemon = need!(Daemon::new().await);
    let engine = daemon.engine().await;
    let daemon = Arc::new(Mutex::new(daemon));
    for last in ["holder-created", "gateway-opened", "sandbox-created"] {
        let dir = tempfile::TempDir::new().unwrap();
        let mut options = engine::options(dir.path());
        let host = daemon.lock().unwrap().host();
        options.engine.env.insert("DOCKER_HOST".to_owned(), host);
        let room = DockerTest::on(engine.clone(), options, base::NAME.to_owned(), dir);
        let stopped = daemon.clone();
        let listening = steps::on_this_thread(move |step| {
            if step == last {
                stopped.lock().unwrap().stop();
                let stopped = stopped.clone();
                thread::spawn(move || {
                    thread::sleep(Duration::from_secs(2));
                    stopped.lock().unwrap().start_again();
                });
            }
        });
        let created = room.provider.create(&room.spec).await;
        drop(listening);
        assert!(created.is_err(), "{last}");
        let left = docker(&engine, &["ps", "--all", "--format", "{{.Names}} {{.Status}}"]);
        assert_eq!(left, "", "{last}");
        assert_eq!(sandbox_dirs(room.dir.path()), 0, "{last}");
    }
}

/// The same command, which is killed after this step.
fn killed_after(step: &str, ralph: &Command) -> Command {
    let arguments: Vec<&str> = ralph
        .get_args()
        .map(|argument| argument.to_str().unwrap())
        .collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    in_place_of(&mut command, ralph);
    command
        .args(["--exact", "interrupted_creation::ralph_itself"])
        .env(LAST_STEP, step)
        .env(ARGUMENTS, arguments.join("\n"));
    command
}

/// Whether nothing in a container reaches an address that the host reaches. In one that does not run, nothing does.
fn is_closed(engine: &Engine, container: &str, elsewhere: &Elsewhere) -> bool {
    let url = elsewhere.spelled("http://{address}:8080/");
    let asked = Command::new("docker")
        .env("DOCKER_HOST", engine.endpoint().to_string())
        .args(["exec", container, "curl", "--silent", "--max-time", "5", &url])
        .output();
    !asked.unwrap().status.success() && elsewhere.received() == 0
}
