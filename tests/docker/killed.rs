//! This suite, killed while it runs: one prune, and the engine is as it was.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::need;
use crate::site::Site;
use crate::support::base;
use crate::support::engine::docker;
use crate::support::ralph::{eventually, finish};

#[tokio::test]
async fn a_suite_that_is_killed_halfway_leaves_nothing_once_pruned() {
    let daemon = need!(Daemon::new().await);
    let site = Site::on(daemon.engine().await, base::NAME);
    let before = traces(&site);
    let places = TempDir::new().unwrap();
    let mut inner = Command::new(std::env::current_exe().unwrap())
        .args(["runs::", "--test-threads=3"])
        .env("DOCKER_HOST", daemon.host())
        .env("TMPDIR", places.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("some runs are at work", || running(&site) >= 2);
    eventually("all of it is killed", || kill_all_of(places.path()) == 0);
    inner.wait().unwrap();
    let left = workspaces(&site);
    assert!(!left.is_empty(), "nothing was left to prune");

    let mut prune = site.ralph(&["sandbox", "prune", "--all", "--type", "docker"]);
    finish(&mut prune).expect(0, &["Removed"]);
    assert_eq!(traces(&site), before);
    for workspace in left {
        assert!(!Path::new(&workspace).exists(), "{workspace} is left");
    }
}

/// Kills the processes that have this directory in their environment; returns how many there were.
fn kill_all_of(places: &Path) -> usize {
    let marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let places = places.as_os_str().as_encoded_bytes();
        environment.windows(places.len()).any(|part| part == places)
    };
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found: Vec<i32> = ids.filter(marked).collect();
    for pid in &found {
        let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
    }
    found.len()
}

/// Everything that an engine could be left with.
fn traces(site: &Site) -> [String; 3] {
    let list = |args: &[&str]| docker(&site.engine, args);
    [
        list(&["ps", "--all", "--format", "{{.Names}} {{.Status}} {{.Labels}}"]),
        list(&["network", "ls", "--quiet"]),
        list(&["volume", "ls", "--quiet"]),
    ]
}

/// The running containers of runs. Others probe the engine.
fn running(site: &Site) -> usize {
    let containers = docker(&site.engine, &["ps", "--quiet", "--filter", "label=ralph.run"]);
    containers.lines().count()
}

/// The workspaces of all runs.
fn workspaces(site: &Site) -> Vec<String> {
    let format = "{{.Label \"ralph.workspace\"}}";
    let args = ["ps", "--all", "--filter", "label=ralph.run", "--format", format];
    let listed = docker(&site.engine, &args);
    listed.lines().map(str::to_owned).collect()
}
