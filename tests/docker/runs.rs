//! Whole runs in containers, by the binary.

use std::time::Duration;

use rstest::rstest;

use crate::need;
use crate::site::{LEFT_BEHIND, Site, slow, wait_until_started};
use crate::support::base;
use crate::support::direct_server::{DirectServer, Flavour, KEY, Said};
use crate::support::engine::docker;
use crate::support::ralph::{
    Live, commit, doing, ending, eventually, finish, run, script, whole_task, write,
};

#[tokio::test]
async fn a_run_does_the_whole_job_in_a_container_and_leaves_nothing() {
    let site = need!(Site::new().await);
    let ended = finish(&mut site.scripted(&script([
        doing([
            run("test -d /proc/1 && id -un || true"),
            write("a.txt", "hello\n"),
            commit("Begin"),
        ]),
        whole_task(),
    ])));
    ended.expect(0, &["done: "]);
    assert!(
        ended.stdout.trim_end().ends_with("pull-request.md"),
        "{}",
        ended.stdout
    );
    let branch = site.place.status()["branch"].as_str().unwrap().to_owned();
    assert_eq!(site.place.git(&["show", &format!("{branch}:b.txt")]), "hello\n");
    site.expect_nothing_left();
}

#[tokio::test]
async fn the_demo_does_the_whole_job_in_a_container() {
    let site = need!(Site::new().await);
    let ended = finish(&mut site.ralph(&["demo", "--type", "docker", "--image", base::NAME]));
    ended.expect(
        0,
        &["(sandbox `docker`)", "evidence: `sh test.sh`: exit 0", "done: "],
    );
    site.expect_nothing_left();
}

/// Only the image is given: that of the agent cannot be downloaded here.
#[tokio::test(flavor = "multi_thread")]
async fn what_init_writes_runs_in_a_container_with_nothing_edited_but_the_goal() {
    let site = need!(Site::new().await);
    let server = DirectServer::saying(Flavour::Zai, Said::Text(whole_task().to_string())).await;
    let mut init = site.ralph(&["init", "--force"]);
    finish(init.env("ZAI_API_KEY", KEY)).expect(0, &["ralph.toml sets `docker` as the sandbox"]);
    site.place.set_goal();
    site.place.write(".env", &format!("ZAI_API_KEY={KEY}\n"));
    let mut run = site.ralph(&["run", "--set", &format!("sandbox.image={}", base::NAME)]);
    run.env("ZAI_BASE_URL", server.base_url());
    let ended = tokio::task::block_in_place(|| finish(&mut run));
    ended.expect(0, &["done: "]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn a_failed_run_leaves_nothing() {
    let site = need!(Site::new().await);
    let ended = finish(
        site.scripted(&script([doing([run("echo tried")])]))
            .args(["--max-iterations", "1"]),
    );
    assert_eq!(ended.code, Some(1), "{ended:?}");
    site.expect_nothing_left();
}

#[rstest]
#[case::killed(&["kill"])]
#[case::removed(&["rm", "--force"])]
#[tokio::test]
async fn a_container_that_is_ended_by_hand_costs_no_iteration(#[case] end: &[&str]) {
    let site = need!(Site::new().await);
    let live = Live::start(&mut site.scripted(&slow()));
    wait_until_started(&site);
    docker(&site.engine, &[end, &[&site.containers()[0]]].concat());
    live.wait()
        .expect(0, &["creating a new sandbox from the checkpoint", "done: "]);
    // The first iteration began again, and the second did the task.
    assert_eq!(site.place.status()["iterations"], 2);
    site.expect_nothing_left();
}

/// The commit is not a failed action of the agent's: the iteration begins again.
#[tokio::test]
async fn a_container_that_is_killed_during_a_commit_costs_no_iteration() {
    let site = need!(Site::new().await);
    let slow_commit = "git config filter.slow.clean 'touch started; sleep 4; cat' && \
         echo 'a.txt filter=slow' >.git/info/attributes";
    let begin = doing([run(slow_commit), write("a.txt", "hello\n"), commit("Slowly")]);
    let live = Live::start(&mut site.scripted(&script([begin, whole_task()])));
    wait_until_started(&site);
    docker(&site.engine, &["kill", &site.containers()[0]]);
    live.wait()
        .expect(0, &["creating a new sandbox from the checkpoint", "done: "]);
    let subjects = site.place.git(&["log", "--all", "--format=%s"]);
    assert_eq!(subjects.matches("Slowly\n").count(), 1, "{subjects}");
    site.expect_nothing_left();
}

#[tokio::test]
async fn what_a_killed_run_left_is_taken_up_by_its_resume() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    let live = begin_and_kill(&site);
    assert_eq!(site.containers().len(), 1);
    drop(live);
    let resumed = finish(&mut site.ralph(&["resume"]));
    resumed.expect(0, &["done: "]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn a_run_is_removed_with_its_sandbox() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    drop(begin_and_kill(&site));
    assert_eq!(site.containers().len(), 1);
    finish(&mut site.ralph(&["rm", &site.place.run_id()])).expect(0, &[]);
    assert_eq!(site.place.runs().len(), 0);
    site.expect_nothing_left();
}

#[tokio::test]
async fn what_a_killed_run_left_is_pruned_once_and_for_all() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    begin_and_kill(&site);
    let name = site.containers()[0].clone();
    let tried = finish(&mut site.ralph(&["sandbox", "prune", "--dry-run", "--json"]));
    tried.expect(0, &["Would remove"]);
    assert!(tried.stdout.contains(&name), "{}", tried.stdout);
    let young = finish(&mut site.ralph(&["prune-sandboxes", "--max-age", "1d"]));
    assert!(!young.stdout.contains(&name), "{}", young.stdout);
    assert_eq!(site.containers(), [name.as_str()]);
    finish(&mut site.ralph(&["prune-sandboxes", "--type", "docker"])).expect(0, &["Removed"]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn what_a_killed_run_left_belongs_to_its_data_directory() {
    let _held = LEFT_BEHIND.lock().await;
    let (site, other) = (need!(Site::new().await), need!(Site::new().await));
    begin_and_kill(&site);
    let name = site.containers()[0].clone();
    // A run under another RALPH_HOME does not remove it, and neither a list nor a prune there shows it.
    finish(&mut other.scripted(&script([whole_task()]))).expect(0, &["done: "]);
    assert_eq!(site.containers(), [name.as_str()]);
    let listed = finish(&mut other.ralph(&["sandbox", "ls"]));
    assert!(!listed.stdout.contains(&name), "{}", listed.stdout);
    listed.expect(0, &["`--all` lists them"]);
    finish(&mut other.ralph(&["sandbox", "prune"])).expect(0, &["Removed 0 docker sandboxes"]);
    let asked = finish(&mut other.ralph(&["sandbox", "prune", "--all", "--dry-run"]));
    assert!(asked.stdout.contains(&name), "{}", asked.stdout);
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn an_interrupted_run_rests_and_its_sandbox_can_be_looked_into_no_more() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    let long = script([doing([run("touch started; sleep 600")])]);
    let live = Live::start(&mut site.scripted(&long));
    wait_until_started(&site);
    let name = site.containers()[0].clone();
    let looked = finish(&mut site.ralph(&["sandbox", "exec", &site.place.run_id(), "--", "ls"]));
    assert_eq!(looked.code, Some(0), "{looked:?}");
    assert!(looked.stdout.contains("README.md"), "{looked:?}");
    let refused = finish(&mut site.ralph(&["sandbox", "rm", &name]));
    refused.expect(2, &["is in use"]);
    live.signal("INT");
    assert_eq!(live.wait().code, Some(3));
    let listed = finish(&mut site.ralph(&["sandbox", "ls"]));
    let mut rows = listed.stdout.lines();
    let row = rows.find(|row| row.contains(&name)).unwrap();
    assert!(row.contains("stopped") && row.contains("owner ended"), "{row}");
    finish(&mut site.ralph(&["sandbox", "rm", &name])).expect(0, &["Removed"]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn eight_runs_at_once_do_not_cross() {
    let mut sites = Vec::new();
    for _ in 0..8 {
        sites.push(need!(Site::new().await));
    }
    let answer = |number: usize| {
        let own = format!("hello {number}\n");
        ending([write("a.txt", &own), write("b.txt", &own), commit("Say hello")])
    };
    let lives: Vec<Live> = sites
        .iter()
        .enumerate()
        .map(|(number, site)| Live::start(&mut site.scripted(&script([answer(number)]))))
        .collect();
    for (number, (live, site)) in lives.into_iter().zip(&sites).enumerate() {
        live.wait().expect(0, &["done: "]);
        let branch = site.place.status()["branch"].as_str().unwrap().to_owned();
        let said = site.place.git(&["show", &format!("{branch}:a.txt")]);
        assert_eq!(said, format!("hello {number}\n"));
        site.expect_nothing_left();
    }
}

/// Begins a run and kills it in its first iteration.
fn begin_and_kill(site: &Site) -> Live {
    let mut live = Live::start(&mut site.scripted(&slow()));
    wait_until_started(site);
    live.signal("KILL");
    eventually("the run is dead", || !live.is_running());
    std::thread::sleep(Duration::from_millis(50));
    live
}
