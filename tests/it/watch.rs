//! `ralph watch` in a real terminal, which tmux makes, and without one.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use crate::control::Held;
use crate::need;
use crate::support::ralph::{
    Live, Place, TASK, call, commit, eventually, finish, in_place_of, program, run, script, waited_for,
    whole_task,
};
use crate::support::skip;

/// A shell in a terminal of its own; both end when it is dropped.
struct Tmux {
    program: PathBuf,
    socket: PathBuf,
    like: Command,
    /// What the terminal was set to before.
    settings: PathBuf,
    /// The process of the server: the directory of the socket may be gone first.
    server: String,
}

impl Tmux {
    /// Starts a shell where `ralph` would run, with this environment besides.
    fn start(place: &Place, env: &[(&str, &str)]) -> Result<Self, String> {
        let mut like = place.ralph(&[]);
        like.envs(env.iter().copied());
        let mut tmux = Self {
            server: String::new(),
            program: skip::program("tmux")?,
            socket: place.path().join("tmux.sock"),
            settings: place.path().join("stty"),
            like,
        };
        tmux.command(&[
            "new-session",
            "-d",
            "-s",
            "w",
            "-x",
            "100",
            "-y",
            "30",
            "PS1='$ ' sh",
        ]);
        let server = tmux.command(&["display-message", "-p", "#{pid}"]);
        server.trim().clone_into(&mut tmux.server);
        let settings = tmux.settings.display();
        tmux.enter(&format!("stty -g >{settings}; clear"));
        eventually("the shell is there", || tmux.settings.exists());
        Ok(tmux)
    }

    fn command(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        in_place_of(&mut command, &self.like);
        let args = [
            &["-u", "-f", "/dev/null", "-S", self.socket.to_str().unwrap()],
            args,
        ]
        .concat();
        let ended = finish(command.args(&args).stdin(Stdio::null()));
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.stdout
    }

    /// Types a line of shell.
    fn enter(&self, line: &str) {
        self.type_text(line);
        self.press("Enter");
    }

    /// Starts `ralph watch` with these arguments. Its end and its process are written down.
    fn watch(&self, args: &str) {
        let (ralph, pid) = (program(), self.pid_file());
        let _ = fs::remove_file(&pid);
        let (ralph, pid) = (ralph.display(), pid.display());
        self.enter(&format!(
            "sh -c 'echo $$ >{pid}; exec {ralph} watch {args}'; echo ended $?"
        ));
    }

    fn pid_file(&self) -> PathBuf {
        self.socket.with_file_name("watch.pid")
    }

    fn pid(&self) -> String {
        eventually("ralph watch starts", || {
            fs::read_to_string(self.pid_file()).is_ok_and(|text| text.ends_with('\n'))
        });
        fs::read_to_string(self.pid_file()).unwrap().trim().to_owned()
    }

    fn press(&self, key: &str) {
        self.command(&["send-keys", "-t", "w", key]);
    }

    fn type_text(&self, text: &str) {
        self.command(&["send-keys", "-t", "w", "-l", text]);
    }

    fn screen(&self) -> String {
        self.command(&["capture-pane", "-p", "-t", "w"])
    }

    /// Waits until the screen has all of these texts.
    #[track_caller]
    fn shows(&self, texts: &[&str]) -> String {
        let is_there = || {
            let screen = self.screen();
            texts.iter().all(|text| screen.contains(text))
        };
        let shown = waited_for(is_there);
        let screen = self.screen();
        assert!(shown, "{texts:?} are not all in\n{screen}");
        screen
    }

    fn resize(&self, width: &str, height: &str) {
        self.command(&["resize-window", "-t", "w", "-x", width, "-y", height]);
    }

    /// Waits for the end of `ralph watch`, and checks that the terminal is as it was before.
    #[track_caller]
    fn ended(&self, code: i32) {
        let screen = self.shows(&[&format!("ended {code}")]);
        assert!(!screen.contains("q: quit"), "{screen}");
        let flags = self.command(&[
            "display-message",
            "-p",
            "-t",
            "w",
            "#{alternate_on} #{cursor_flag}",
        ]);
        assert_eq!(flags.trim(), "0 1", "main screen, cursor shown");
        let after = self.settings.with_extension("after");
        self.enter(&format!("stty -g >{}", after.display()));
        let before = fs::read_to_string(&self.settings).unwrap();
        eventually("the settings of the terminal are those before", || {
            fs::read_to_string(&after).is_ok_and(|text| text == before)
        });
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.server).output();
    }
}

/// Pastes a note and types a sign.
fn leave_note_and_sign(tmux: &Tmux, id: &str) {
    tmux.type_text("n");
    tmux.shows(&["Enter: send"]);
    // Pasted lines are one text, and no keys.
    tmux.command(&["set-buffer", "mind\nthe gap"]);
    tmux.command(&["paste-buffer", "-p", "-t", "w"]);
    tmux.shows(&["mind the gap", "Enter: send"]);
    tmux.press("Enter");
    tmux.shows(&[&format!("Left a note for run {id}")]);
    for part in ["ssmall steps", "a large diff", "split it"] {
        tmux.type_text(part);
        tmux.press("Enter");
    }
    tmux.shows(&["Left the sign `small steps`"]);
}

#[test]
fn a_run_is_watched_and_steered_in_a_terminal() {
    let held = Held::start();
    let (place, id) = (&held.place, held.place.run_id());
    let tmux = need!(Tmux::start(place, &[]));
    tmux.watch("");
    tmux.shows(&[
        "1 run on this host",
        "Running (1)",
        &format!("> {id}"),
        "running",
        "Say hello",
        "?: help",
    ]);
    tmux.press("Enter");
    tmux.shows(&[
        "[1 Overview]",
        "running, 0 iterations",
        "0 of 6",
        "[ ] M1.1 a.txt says hello",
    ]);
    tmux.press("2");
    tmux.shows(&["[2 Log]", "following", "iteration 1", "draft.txt"]);

    leave_note_and_sign(&tmux, &id);
    tmux.type_text("p");
    tmux.shows(&[&format!("Asked run {id} to pause after this iteration.")]);
    tmux.type_text("1");
    tmux.shows(&[
        "Requests",
        "pending  note: mind the gap",
        "pending  sign: small steps",
    ]);

    held.let_go();
    let Held { place, live } = held;
    live.wait().expect(3, &["paused: a person asked for a pause"]);
    tmux.shows(&["paused, 1 iteration", "a person asked for a pause"]);
    tmux.type_text("3");
    tmux.shows(&["[3 Diff]", "+draft"]);
    tmux.resize("40", "10");
    tmux.shows(&["[3 Diff]", "?: help"]);
    assert!(tmux.screen().lines().all(|line| line.chars().count() <= 40));
    tmux.resize("100", "30");

    tmux.type_text("p");
    tmux.shows(&[&format!("Queued run {id}")]);
    tmux.type_text("1");
    tmux.shows(&["queued, 1 iteration"]);
    place.run(&["worker", "--once"]).expect(0, &[]);
    tmux.shows(&["done, 2 iterations, 2 of 2 checkboxes", "[x] M1.2"]);
    assert!(place.noted("iterations/2/prompt.md").contains("mind the gap"));
    assert!(place.noted("guardrails.md").contains("small steps"));
    tmux.type_text("ntoo late");
    tmux.press("Enter");
    tmux.shows(&["is done, so nothing can be asked of it", "Hint: "]);
    tmux.type_text("q");
    tmux.shows(&["Done (1)"]);
    tmux.type_text("q");
    tmux.ended(0);
}

#[test]
fn a_run_is_stopped_after_a_question_and_rotated() {
    let held = Held::start();
    let id = held.place.run_id();
    let tmux = need!(Tmux::start(&held.place, &[("NO_COLOR", "1")]));
    tmux.watch(&id[..5]);
    tmux.shows(&["running, 0 iterations"]);
    let coloured = tmux.command(&["capture-pane", "-p", "-e", "-t", "w"]);
    // 39 is the colour that the terminal has anyway.
    let colours = (30..=38).map(|number| format!("\x1b[{number}"));
    assert!(
        !colours.into_iter().any(|code| coloured.contains(&code)),
        "{coloured:?}"
    );
    tmux.type_text("x");
    tmux.shows(&[&format!("Stop run {id} now? y/n")]);
    tmux.type_text("n");
    tmux.shows(&["Not stopped."]);
    tmux.type_text("xy");
    let Held { place, live } = held;
    live.wait().expect(3, &["stopped"]);
    tmux.shows(&["stopped, 0 iterations"]);
    tmux.press("Escape");
    tmux.shows(&["Done (1)"]);

    let live = Live::start(&mut place.ralph(&["resume", &id]));
    tmux.shows(&["Running (1)"]);
    tmux.type_text("r");
    tmux.shows(&[&format!("Asked run {id} for a fresh iteration.")]);
    live.wait()
        .expect(0, &["a person asked for a fresh context", "done: "]);
    tmux.shows(&["Done (1)", "done"]);
    tmux.press("C-c");
    tmux.ended(130);
}

#[rstest]
#[case::terminated("TERM")]
#[case::interrupted("INT")]
fn a_signal_ends_the_view_and_gives_the_terminal_back(#[case] signal: &str) {
    let place = Place::new();
    let tmux = need!(Tmux::start(&place, &[]));
    tmux.watch("");
    tmux.shows(&["No runs yet.", "`ralph run` starts one", "q: quit"]);
    let sent = Command::new("kill").args(["-s", signal, &tmux.pid()]).status();
    assert!(sent.unwrap().success());
    tmux.ended(130);
}

#[test]
fn nothing_that_others_wrote_commands_the_terminal() {
    let place = Place::new();
    let evil = "\x1b]0;evil\x07\x1b[2J\x1bc\u{9b}2J\u{202e}";
    place.write(
        "ralph_task.md",
        &TASK.replace("Say hello", &format!("Say {evil}hello")),
    );
    let first = json!({
        "summary": evil,
        "actions": [run(&format!("printf '%s\\n' '{evil}out' | tee 'new {evil}'; exit 3")), commit(evil)],
    });
    let steps = json!({"iterations": [[call(&first)], [call(&whole_task())]]});
    place.run_script(&steps).expect(0, &["done: "]);
    let tmux = need!(Tmux::start(&place, &[]));
    let raw = place.path().join("raw");
    tmux.command(&["pipe-pane", "-t", "w", &format!("cat >{}", raw.display())]);
    tmux.watch("");
    tmux.shows(&["Done (1)", "Say \\u001b]0;evil\\u0007"]);
    tmux.press("Enter");
    tmux.shows(&["done, 2 iterations"]);
    tmux.type_text("2");
    tmux.shows(&["[2 Log]", "following"]);
    tmux.type_text("/evil");
    tmux.press("Enter");
    tmux.shows(&["with `evil`", "\\u001b]0;evil\\u0007"]);
    tmux.type_text("3");
    tmux.shows(&["[3 Diff]", "+\\u001b]0;evil"]);
    tmux.type_text("qq");
    tmux.ended(0);
    let title = tmux.command(&["display-message", "-p", "-t", "w", "#{pane_title}"]);
    assert!(!title.contains("evil"), "{title}");
    let raw = String::from_utf8_lossy(&fs::read(raw).unwrap()).into_owned();
    for part in ["\x1b]0;evil", "\x07", "\x1bc", "\u{9b}", "\u{202e}"] {
        assert!(!raw.contains(part), "{part:?} reached the terminal");
    }
}

#[test]
fn a_long_log_is_not_read_whole() {
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done: "]);
    let log = place.run_dir().join("events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let line = text.lines().next().unwrap().to_owned() + "\n";
    let many = line.repeat(100 * 1024 * 1024 / line.len());
    fs::write(&log, many + &text).unwrap();
    let tmux = need!(Tmux::start(&place, &[]));
    tmux.watch(&place.run_id());
    tmux.shows(&["done, 1 iteration"]);
    tmux.type_text("2");
    tmux.shows(&["following, newest lines", "done: "]);
    std::thread::sleep(Duration::from_secs(3));
    let of_process = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", tmux.pid()));
    if let (Ok(status), Ok(io)) = (of_process("status"), of_process("io")) {
        let number = |text: &str, key: &str| -> u64 {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        assert!(number(&io, "rchar:") < 50_000_000, "{io}");
        assert!(number(&status, "VmHWM:") < 200_000, "{status}");
    }
    tmux.type_text("qq");
    tmux.ended(0);
}

/// A `ralph serve` over the runs of a place; ended when dropped.
struct Service {
    child: Child,
    url: String,
}

impl Service {
    fn start(place: &Place, listen: &str) -> Self {
        let said = place.path().join("serve.log");
        let mut command = place.ralph(&["serve", "--workers", "0", "--listen", listen]);
        let child = command
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said).unwrap())
            .spawn();
        let mut service = Self {
            child: child.unwrap(),
            url: String::new(),
        };
        eventually("the service listens", || {
            let text = fs::read_to_string(&said).unwrap();
            let address = text
                .split_once("Serving the API on ")
                .and_then(|(_, rest)| rest.lines().next());
            let address = address.unwrap_or_default().trim_end_matches('.');
            address.clone_into(&mut service.url);
            assert!(service.child.try_wait().unwrap().is_none(), "{text}");
            !service.url.is_empty()
        });
        service
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token(place: &Place, scope: &str) -> String {
    let created = place.run(&["api-token", "create", scope, "--scope", scope]);
    created.expect(0, &[]).stdout.trim().to_owned()
}

#[test]
fn the_runs_of_a_service_are_watched_also_while_it_is_away() {
    let held = Held::start();
    let (place, id) = (&held.place, held.place.run_id());
    let token = token(place, "steer");
    let service = Service::start(place, "127.0.0.1:0");
    let tmux = need!(Tmux::start(place, &[("RALPH_API_TOKEN", &token)]));
    let url = service.url.clone();
    tmux.watch(&format!("--url {url}/"));
    tmux.shows(&[&format!("1 run on {url}"), "Running (1)", &id]);
    tmux.press("Enter");
    tmux.shows(&["running, 0 iterations", "0 of 6"]);
    tmux.type_text("2");
    tmux.shows(&["iteration 1"]);
    tmux.type_text("nmind the gap");
    tmux.press("Enter");
    tmux.shows(&["this needs the mode `GUIDED`", "Hint: set dashboard.mode"]);
    tmux.type_text("p");
    tmux.shows(&[&format!("Asked run {id} to pause")]);

    drop(service);
    tmux.type_text("1");
    tmux.shows(&[
        &format!("cannot reach {url}"),
        "Trying again",
        "running, 0 iterations",
    ]);
    held.let_go();
    let Held { place, live } = held;
    live.wait().expect(3, &["paused: "]);
    let service = Service::start(&place, url.trim_start_matches("http://"));
    let screen = tmux.shows(&["paused, 1 iteration"]);
    eventually("the trouble is over", || !tmux.screen().contains("cannot reach"));
    assert!(!screen.contains(&token));
    tmux.type_text("3");
    tmux.shows(&["+draft"]);
    drop(service);
    tmux.type_text("qq");
    tmux.ended(0);
}

#[test]
fn without_a_terminal_the_log_is_printed_until_the_end_of_the_run() {
    let held = Held::start();
    let id = held.place.run_id();
    let list = held.place.run(&["watch"]);
    list.expect(0, &[]);
    let lines: Vec<&str> = list.stdout.lines().collect();
    assert!(
        lines.len() == 2 && lines[1].starts_with(&id) && lines[1].ends_with("Say hello"),
        "{list:?}"
    );
    let token = token(&held.place, "read");
    let service = Service::start(&held.place, "127.0.0.1:0");
    let following = Live::start(&mut held.place.ralph(&["watch", &id]));
    let mut remote = held.place.ralph(&["watch", &id[..4], "--url", &service.url]);
    let remote = Live::start(remote.env("RALPH_API_TOKEN", token));
    // Long enough for both to have begun.
    std::thread::sleep(Duration::from_millis(500));
    held.let_go();
    let Held { place, live } = held;
    live.wait().expect(0, &[]);
    let logs = place.run(&["logs"]).stdout;
    for followed in [following.wait(), remote.wait()] {
        followed.expect(0, &[]);
        assert_eq!(followed.stdout, logs);
        assert!(!followed.stdout.contains('\x1b') && followed.stdout.contains("done: "));
    }
    let tmux = need!(Tmux::start(&place, &[]));
    tmux.enter(&format!("TERM=dumb {} watch; echo ended $?", program().display()));
    tmux.shows(&["RUN", "ITERATIONS", &id, "ended 0"]);
}

#[test]
fn what_cannot_be_watched_is_refused_with_a_next_step() {
    let place = Place::new();
    place
        .run(&["watch"])
        .expect(0, &["No runs yet. `ralph run` starts one"]);
    place
        .run(&["watch", "unheard-of"])
        .expect_refused(&["no run is named `unheard-of`", "hint: "]);
    place
        .run(&["watch", "--url", "127.0.0.1:8000"])
        .expect_refused(&["`127.0.0.1:8000` is not the address of a service", "hint: "]);
    let service = Service::start(&place, "127.0.0.1:0");
    let url = service.url.clone();
    let without = place.run(&["watch", "--url", &url]);
    without.expect_refused(&["RALPH_API_TOKEN is not set", "hint: `ralph api-token create"]);
    let with = |token: &str, args: &[&str]| {
        let args = [&["watch", "--url", &url], args].concat();
        finish(place.ralph(&args).env("RALPH_API_TOKEN", token))
    };
    with("ralph_wrong", &[]).expect_refused(&["refused the token in RALPH_API_TOKEN", "hint: "]);
    with("wrong\u{7f}", &[]).expect_refused(&["the token in RALPH_API_TOKEN has characters"]);
    let token = token(&place, "read");
    with(&token, &["r7k2m9xq4"]).expect_refused(&["has no run `r7k2m9xq4`", "hint: "]);
    place.write(".env", &format!("RALPH_API_TOKEN={token}\n"));
    without_runs(&place, &url);
    drop(service);
    let ended = with(&token, &[]);
    ended.expect(
        1,
        &[
            &format!("ralph: cannot reach {url}: "),
            "hint: check that `ralph serve`",
        ],
    );
    assert_eq!(ended.stdout, "");
}

/// The token of `.env` is used.
fn without_runs(place: &Place, url: &str) {
    place.run(&["watch", "--url", url]).expect(0, &["No runs yet."]);
}
