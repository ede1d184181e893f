//! A run whose checkpoints are pushed to a repository of their own, and goes on from that alone.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ending::{Ending, UNDISTURBED};
use crate::world::{SCRIPT, World, stderr_text};

#[test]
fn a_run_goes_on_in_another_clone_from_the_state_remote_alone() {
    let mut world = World::new(SCRIPT);
    let remote = state_remote(&world);
    let clone = clone(&world);
    let mut ralph = world.start_command(&mut with_remote(&world, &world.run_args(), &remote));
    assert!(ralph.wait_for("iteration_ended", 2), "{}", ralph.stderr());
    ralph.kill();
    let run = world.run_id();
    fs::rename(world.home(), world.path().join("first home")).unwrap();
    fs::rename(world.repo(), world.path().join("first repo")).unwrap();
    world.move_to(clone);
    let output = with_remote(&world, &["resume".to_owned(), run], &remote)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    Ending::of(&world).assert_same_as(&UNDISTURBED.0);
    assert_eq!(remote_state(&world, &remote), local_state(&world));
}

/// The first process is only suspended while the second one finishes the run.
#[test]
fn a_process_that_lost_the_run_writes_nothing() {
    let mut world = World::new(SCRIPT);
    let remote = state_remote(&world);
    let clone = clone(&world);
    let mut first = world.start_command(&mut with_remote(&world, &world.run_args(), &remote));
    assert!(first.wait_for("iteration_ended", 1), "{}", first.stderr());
    first.signal("STOP");
    let run = world.run_id();
    let first_dir = world.run_dir().unwrap();
    let second = with_remote(&world, &["resume".to_owned(), run], &remote)
        .current_dir(&clone)
        .env("RALPH_HOME", world.path().join("second home"))
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(0), "{}", stderr_text(&second));
    let finished = remote_state(&world, &remote);
    first.signal("CONT");
    assert_eq!(first.finish().code(), Some(1), "{}", first.stderr());
    assert!(
        first.stderr().contains("was taken over by process "),
        "{}",
        first.stderr()
    );
    assert_eq!(remote_state(&world, &remote), finished);
    assert!(!first_dir.join("pull-request.md").exists());
    let journal = fs::read_to_string(first_dir.join("journal.jsonl")).unwrap();
    assert!(!journal.contains("\"iteration\":2,\"tip\""), "{journal}");
    world.move_to(clone);
    assert_eq!(world.processes(), [""; 0]);
}

#[test]
fn a_public_state_remote_is_refused_by_name() {
    let world = World::new(SCRIPT);
    let remote = state_remote(&world);
    let git = |args: &[&str]| {
        let done = Command::new("git").args(args).current_dir(&remote).status();
        assert!(done.unwrap().success(), "{args:?}");
    };
    git(&["fetch", "--quiet", world.repo().to_str().unwrap(), "main:main"]);
    git(&["update-server-info"]);
    let url = serve(remote);
    let output = with_remote(&world, &world.run_args(), Path::new(&url))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
    let expected =
        format!("`git.state_remote` is a public repository: {url} can be read without a credential");
    assert!(
        stderr_text(&output).contains(&expected),
        "{}",
        stderr_text(&output)
    );
    assert_eq!(world.run_dir(), None);
}

/// An empty bare repository.
fn state_remote(world: &World) -> PathBuf {
    let dir = world.path().join("state.git");
    world.git(&["init", "--quiet", "--bare", dir.to_str().unwrap()]);
    dir
}

/// A fresh clone of the user's repository.
fn clone(world: &World) -> PathBuf {
    let dir = world.path().join("clone");
    world.git(&["clone", "--quiet", ".", dir.to_str().unwrap()]);
    dir
}

fn with_remote(world: &World, args: &[String], remote: &Path) -> Command {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = world.command(env!("CARGO_BIN_EXE_ralph"), &args);
    command.env("RALPH_GIT__STATE_REMOTE", remote);
    command
}

fn remote_state(world: &World, remote: &Path) -> String {
    let dir = format!("--git-dir={}", remote.display());
    world.git(&[&dir, "for-each-ref", "--format=%(refname) %(objectname)"])
}

fn local_state(world: &World) -> String {
    world.git(&[
        "for-each-ref",
        "--format=%(refname) %(objectname)",
        "refs/ralph/*/state",
    ])
}

/// Serves the files of a repository by HTTP, which is enough for git. Returns its address.
fn serve(dir: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/state.git", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            let path = request.split(' ').nth(1).unwrap();
            let path = path.split('?').next().unwrap().trim_start_matches("/state.git/");
            let found = fs::read(dir.join(path)).ok();
            let status = if found.is_some() {
                "200 OK"
            } else {
                "404 Not Found"
            };
            let body = found.unwrap_or_default();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // Git may close the connection first.
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&body));
        }
    });
    url
}
