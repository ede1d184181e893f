//! Engines that fail during a run: it continues, or pauses with the reason, and nothing is lost.

use crate::daemon::Daemon;
use crate::need;
use crate::site::{Site, slow, wait_until_started};
use crate::support::base;
use crate::support::engine::docker;
use crate::support::ralph::{Live, commit, doing, finish, run, script, whole_task, write};
use crate::support::small_disk::SmallDisk;

#[tokio::test]
async fn an_engine_that_restarts_costs_one_iteration_begun_again() {
    let mut daemon = need!(Daemon::new().await);
    let site = Site::on(daemon.engine().await, base::NAME);
    let live = Live::start(&mut site.scripted(&slow()));
    wait_until_started(&site);
    daemon.restart();
    live.wait()
        .expect(0, &["creating a new sandbox from the checkpoint", "done: "]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn a_run_that_finds_the_engines_disk_full_can_be_taken_up_later() {
    let daemon = need!(Daemon::new().await);
    let site = Site::on(daemon.engine().await, base::NAME);
    daemon.fill();
    finish(&mut site.scripted(&script([whole_task()])))
        .expect(1, &["the disk of the container engine is full", "hint: "]);
    daemon.free();
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    site.expect_nothing_left();
}

/// Sandboxes need more room than a run, which could begin here.
#[tokio::test]
async fn a_host_without_room_for_a_sandbox_says_what_to_do() {
    let site = need!(Site::new().await);
    let disk = need!(SmallDisk::mount(&site.place.home(), "160m"));
    finish(&mut site.scripted(&script([whole_task()]))).expect(
        1,
        &[
            "MB are left on the disk",
            "hint: raise `sandbox.resources.disk`, free some",
        ],
    );
    disk.resize("1g");
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn an_image_that_was_removed_pauses_the_run() {
    let engine = need!(crate::support::engine::engine().await);
    need!(base::image(&engine).await);
    let image = format!("ralph-test-removed-{}:1", std::process::id());
    docker(&engine, &["tag", base::NAME, &image]);
    let site = Site::on(engine, &image);
    let live = Live::start(&mut site.scripted(&slow()));
    wait_until_started(&site);
    docker(&site.engine, &["rmi", &image]);
    docker(&site.engine, &["rm", "--force", &site.containers()[0]]);
    live.wait()
        .expect(3, &["paused: ", &format!("the image `{image}` does not exist")]);
    docker(&site.engine, &["tag", base::NAME, &image]);
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    docker(&site.engine, &["rmi", &image]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn a_disk_that_fills_during_an_iteration_pauses_the_run() {
    let site = need!(Site::new().await);
    let begin = doing([write("a.txt", "hello\n"), commit("Begin to say hello")]);
    let fill = doing([run("head -c 80000000 /dev/zero > ../home/full; sleep 5")]);
    let mut command = site.scripted(&script([begin, fill, whole_task()]));
    let paused = finish(command.args(["--set", "sandbox.resources.disk=60m"]));
    paused.expect(
        3,
        &["paused: ", "may use 60 MB", "raise `sandbox.resources.disk`"],
    );
    // It goes on in a new sandbox, with the same limit.
    site.expect_nothing_left();
    finish(&mut site.ralph(&["resume"])).expect(3, &["paused: ", "may use 60 MB"]);
    finish(&mut site.ralph(&["resume", "--set", "sandbox.resources.disk=1g"])).expect(0, &["done: "]);
    let history = site.place.git(&["log", "--all", "--format=%s"]);
    assert_eq!(history.matches("Begin to say hello").count(), 1, "{history}");
    site.expect_nothing_left();
}
