//! Engines that fail a run in the midst of it: it goes on, or rests with the reason, and nothing is lost.

use crate::daemon::Daemon;
use crate::need;
use crate::site::{Site, slow, wait_until_started};
use crate::support::base;
use crate::support::engine::docker;
use crate::support::ralph::{Live, finish, script, whole_task};

#[tokio::test]
async fn an_engine_that_restarts_costs_one_iteration_begun_again() {
    let mut daemon = need!(Daemon::new().await);
    let site = Site::on(daemon.engine().await, base::NAME);
    let live = Live::start(&mut site.scripted(&slow()));
    wait_until_started(&site);
    daemon.restart();
    live.wait()
        .expect(0, &["making a new one from the checkpoint", "done: "]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn a_run_that_finds_the_engines_disk_full_can_be_taken_up_later() {
    let daemon = need!(Daemon::new().await);
    let site = Site::on(daemon.engine().await, base::NAME);
    daemon.fill();
    finish(&mut site.scripted(&script([whole_task()]))).expect(1, &["the engine's disk is full", "hint: "]);
    daemon.free();
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
        .expect(3, &["paused: ", &format!("not found: the image `{image}`")]);
    docker(&site.engine, &["tag", base::NAME, &image]);
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    docker(&site.engine, &["rmi", &image]);
    site.expect_nothing_left();
}
