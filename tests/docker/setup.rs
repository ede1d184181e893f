//! What `setup_command` makes is kept, and both the agent and evidence start from it.

use std::fs;

use crate::need;
use crate::site::Site;
use crate::support::ralph::{TASK, commit, doing, ending, finish, run, script, write};

/// Leaves something new each time that it runs.
const SETUP: &str = "mkdir -p deps && cp /proc/sys/kernel/random/uuid deps/id && cp deps/id \"$HOME/id\"";
/// Shows which run of the set-up it sees. The home and the checkout are of the same one.
const SHOW: &str = "test -s deps/id && cmp deps/id \"$HOME/id\" && echo \"set up $(cat deps/id)\"";

fn prepare(site: &Site) {
    site.place.write("Cargo.lock", "one\n");
    site.place.write(".gitignore", "deps/\n");
    site.place.commit("Lock");
    let task = TASK
        .replace("test_command:", &format!("setup_command: {SETUP}\ntest_command:"))
        .replace(
            "`grep -q hello a.txt`",
            &format!("`{SHOW} && grep -q hello a.txt`"),
        );
    site.place.write("ralph_task.md", &task);
}

/// Which executions of the set-up the commands of all runs saw.
fn seen(site: &Site) -> Vec<String> {
    let runs = site.place.runs().into_iter();
    let events = runs.map(|run| fs::read_to_string(run.join("events.jsonl")).unwrap());
    let events = events.collect::<String>();
    let lines = events.lines().filter_map(|line| line.split_once("\"set up "));
    let ids = lines.filter_map(|(_, id)| id.get(..36));
    ids.filter(|id| !id.contains('$')).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_agent_and_evidence_start_from_one_set_up() {
    let site = need!(Site::new().await);
    prepare(&site);
    let answers = script([
        doing([run(SHOW), write("a.txt", "hello\n"), commit("Begin")]),
        ending([run(SHOW), write("b.txt", "hello\n"), commit("Finish")]),
    ]);
    finish(&mut site.scripted(&answers)).expect(0, &["done: "]);
    let first = seen(&site);
    assert!(first.len() >= 3, "{first:?}");
    assert!(first.iter().all(|id| *id == first[0]), "{first:?}");
    let layers = site.place.home().join("cache/setup");
    assert_eq!(fs::read_dir(&layers).unwrap().count(), 1);
    // So does the next run.
    finish(&mut site.scripted(&answers)).expect(0, &["done: "]);
    let both = seen(&site);
    assert!(both.len() > first.len(), "{both:?}");
    assert!(both.iter().all(|id| *id == first[0]), "{both:?}");
    site.expect_nothing_left();
}

#[tokio::test]
async fn evidence_is_set_up_again_when_the_lock_file_changed() {
    let site = need!(Site::new().await);
    prepare(&site);
    let answers = script([ending([
        run(SHOW),
        write("Cargo.lock", "two\n"),
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Change the lock file"),
    ])]);
    let ended = finish(&mut site.scripted(&answers));
    ended.expect(0, &["done: ", &format!("evidence: `{SETUP}`: exit 0")]);
    let seen = seen(&site);
    assert_ne!(seen.first(), seen.last(), "{seen:?}");
    // What an agent's commit made is not kept for others.
    let layers = site.place.home().join("cache/setup");
    assert_eq!(fs::read_dir(&layers).unwrap().count(), 1);
    site.expect_nothing_left();
}

#[tokio::test]
async fn a_layer_does_not_replace_files_of_the_commit() {
    let site = need!(Site::new().await);
    prepare(&site);
    let answers = script([ending([
        run("echo forged > deps/more && git add --force deps/more"),
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Add a dependency by hand"),
    ])]);
    let ended = finish(&mut site.scripted(&answers));
    // The set-up itself decides.
    ended.expect(0, &["done: ", &format!("evidence: `{SETUP}`: exit 0")]);
    site.expect_nothing_left();
}

#[tokio::test]
async fn a_set_up_that_fails_on_the_base_starts_no_agent() {
    let site = need!(Site::new().await);
    prepare(&site);
    let task = fs::read_to_string(site.place.repo().join("ralph_task.md")).unwrap();
    site.place
        .write("ralph_task.md", &task.replace(SETUP, "cat no-such-file"));
    let ended = finish(&mut site.scripted(&script([ending([write("a.txt", "hello\n")])])));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("the `setup_command` failed before the agent started: `cat no-such-file`: exit 1"),
        "{ended:?}"
    );
    assert!(!site.place.home().join("cache/setup").exists());
    site.expect_nothing_left();
}
