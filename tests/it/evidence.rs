//! Signed evidence, from a run to `ralph evidence verify`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ralph::evidence::{SigningKey, VerifyingKey};
use serde_json::Value;

use crate::need;
use crate::support::ralph::{Place, commit, doing, ending, finish, run, script, whole_task, write};
use crate::support::skip;

const BRANCH: &str = "ralph/t1/say-hello";
const LISTED: &str = ".ralph-evidence-keys/host.pem";

/// A repository in which a run is done, and its public key in a file.
fn done() -> (Place, PathBuf) {
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done: "]);
    let key = key_file(&place);
    (place, key)
}

/// The public key of the host, as `ralph evidence key` prints it.
fn key_file(place: &Place) -> PathBuf {
    let printed = place.run(&["evidence", "key"]);
    printed.expect(0, &["sha256:", LISTED.rsplit_once('/').unwrap().0]);
    let file = place.path().join("key.pem");
    fs::write(&file, printed.stdout).unwrap();
    file
}

/// Commits a file on what is checked out, and nothing else.
fn commit_file(place: &Place, name: &str, text: &str) {
    place.write(name, text);
    place.git(&["add", "--force", name]);
    place.git(&["commit", "--quiet", "--message", "A file", "--", name]);
}

fn note(place: &Place) -> String {
    place.git(&["notes", "--ref=ralph-evidence", "show", BRANCH])
}

#[test]
fn only_a_given_key_or_one_on_the_base_branch_verifies_a_run() {
    let (place, key) = done();
    let pem = fs::read_to_string(&key).unwrap();
    let id = VerifyingKey::parse("key", &pem).unwrap().id().to_string();
    let tip = place.git(&["rev-parse", BRANCH]).trim().to_owned();
    let pull_request = fs::read_to_string(place.run_dir().join("pull-request.md")).unwrap();
    let line = format!(
        "Signed with the key `{id}` of ralph's host; `ralph evidence verify {tip}` verifies it where its git notes"
    );
    assert!(pull_request.contains(&line), "{pull_request}");

    let verify = |args: &[&str]| place.run(&[&["evidence", "verify", BRANCH], args].concat());
    let refused = verify(&[]);
    refused.expect(
        1,
        &[
            "none of the trusted keys signed it",
            &id,
            "lists 0 keys",
            "hint: get the public key",
        ],
    );
    assert_eq!(refused.stdout, "", "an unverified statement is not printed");

    let verified = verify(&["--key", key.to_str().unwrap()]);
    verified.expect(0, &[]);
    assert!(
        verified
            .stdout
            .starts_with(&format!("verified: signed with {id} (")),
        "{verified:?}"
    );

    let other = place.path().join("other.pem");
    fs::write(&other, SigningKey::generate().unwrap().public().pem()).unwrap();
    verify(&["--key", other.to_str().unwrap()])
        .expect(1, &["none of the trusted keys", "hint: compare the key"]);

    // Neither the working directory nor another branch lists keys.
    place.write(LISTED, &pem);
    verify(&[]).expect(1, &["refs/heads/main lists 0 keys"]);
    place.git(&["checkout", "--quiet", "-b", "elsewhere"]);
    commit_file(&place, LISTED, &pem);
    verify(&[]).expect(1, &["refs/heads/main lists 0 keys"]);
    verify(&["--base", "elsewhere"]).expect(0, &[]);

    place.git(&["checkout", "--quiet", "main"]);
    commit_file(&place, LISTED, &pem);
    commit_file(&place, ".ralph-evidence-keys/broken.pem", "text\n");
    let verified = verify(&[]);
    verified.expect(
        0,
        &["warning: `.ralph-evidence-keys/broken.pem` is not an Ed25519 public key"],
    );
    let by = format!("verified: signed with {id} ({LISTED} on refs/heads/main)");
    assert!(verified.stdout.starts_with(&by), "{verified:?}");
}

#[test]
fn a_statement_says_what_ralph_ran() {
    let (place, key) = done();
    let shown = place.run(&["evidence", "show", BRANCH]);
    shown.expect(0, &["not verified: anyone can write this"]);
    assert!(shown.stdout.contains("`sh test.sh`: exit 0 after "), "{shown:?}");

    let output = place.run(&[
        "evidence",
        "verify",
        BRANCH,
        "--json",
        "--key",
        key.to_str().unwrap(),
    ]);
    let verified: Value = serde_json::from_str(&output.expect(0, &[]).stdout).unwrap();
    let statement = &verified[0]["statement"];
    let raw = place.run(&["evidence", "show", BRANCH, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&raw.stdout).unwrap()[0], *statement);
    let tip = place.git(&["rev-parse", BRANCH]);
    assert_eq!(statement["subject"][0]["digest"]["gitCommit"], tip.trim());
    let predicate = &statement["predicate"];
    assert_eq!(predicate["agents"][0]["model"], "scripted");
    let expected = [
        ("task", "t1".to_owned()),
        ("run", place.run_id()),
        ("base", place.git(&["rev-parse", "main"]).trim().to_owned()),
        ("provider", "local".to_owned()),
        ("ralph", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (field, value) in expected {
        assert_eq!(predicate[field], value, "{field}");
    }
    let commands = predicate["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        assert_eq!((&command["exit"], &command["runs"]), (&0.into(), &1.into()));
        assert_eq!(command["commit"], tip.trim());
        let started: jiff::Timestamp = command["started"].as_str().unwrap().parse().unwrap();
        assert!(
            (started - jiff::Timestamp::now()).get_hours().abs() < 1,
            "{started}"
        );
        assert!(command["seconds"].as_f64().unwrap() < 60.0);
    }
    assert_eq!(predicate["apart"], false);
    assert!(!predicate["shared"].as_array().unwrap().is_empty());
    assert_eq!(predicate["image"], Value::Null);
    assert_eq!(predicate["network"]["mode"], "allow-all");
    assert!(
        predicate["network"]["digest"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
    assert_eq!(predicate["agents"][0]["name"], "actions");
    assert_eq!(predicate["tokens"]["input"], 100);
    assert_eq!(predicate["costUsd"], 0.001);
}

#[test]
fn a_key_that_the_run_itself_added_does_not_count_even_after_a_merge() {
    let place = Place::new();
    let pem = fs::read_to_string(key_file(&place)).unwrap();
    let answer = ending([
        write(LISTED, &pem),
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ]);
    place.run_script(&script([answer])).expect(0, &["done: "]);
    let pull_request = fs::read_to_string(place.run_dir().join("pull-request.md")).unwrap();
    let flag = format!("- `{LISTED}`: decides whose signatures on evidence count");
    assert!(pull_request.contains(&flag), "{pull_request}");

    let verify = || place.run(&["evidence", "verify", BRANCH]);
    verify().expect(1, &["lists 0 keys"]);
    let own = "host.pem on refs/heads/main was added by the commit's own branch and does not count";
    place.git(&["merge", "--quiet", "--no-ff", "--message", "Merge", BRANCH]);
    verify().expect(1, &[own]);
    commit_file(&place, "later.txt", "later\n");
    verify().expect(1, &[own]);
    place.git(&["reset", "--quiet", "--hard", BRANCH]);
    verify().expect(1, &[own]);
}

#[test]
fn a_note_counts_for_its_own_commit_only_and_others_cannot_hide_it() {
    let (place, key) = done();
    let verify = |commit: &str| place.run(&["evidence", "verify", commit, "--key", key.to_str().unwrap()]);
    let last = "hint: name the last commit of a run, such as its branch";
    verify("main").expect(1, &["has no evidence", &format!("{last}\n")]);
    place.git(&["remote", "add", "origin", "/nowhere"]);
    let fetch = "get its note with `git fetch origin refs/notes/ralph-evidence:refs/notes/ralph-evidence`";
    verify("main").expect(1, &[&format!("{last}, or {fetch}")]);
    place.git(&["remote", "remove", "origin"]);
    place.git(&["notes", "--ref=ralph-evidence", "copy", BRANCH, "main"]);
    verify("main").expect(
        1,
        &["is about ", "not about this commit", "hint: the note was copied"],
    );

    place.git(&[
        "notes",
        "--ref=ralph-evidence",
        "append",
        "-m",
        "{} junk \u{1b}[31m",
        BRANCH,
    ]);
    verify(BRANCH).expect(0, &[]);
    let cheaper = |text: &str| {
        let mut envelope: Value = serde_json::from_str(text).unwrap();
        let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
        let payload = String::from_utf8(payload)
            .unwrap()
            .replace("\"exit\":0", "\"exit\":1");
        envelope["payload"] = STANDARD.encode(payload).into();
        envelope.to_string()
    };
    let forged = cheaper(note(&place).lines().next().unwrap());
    place.git(&[
        "notes",
        "--ref=ralph-evidence",
        "add",
        "--force",
        "-m",
        &forged,
        BRANCH,
    ]);
    verify(BRANCH).expect(1, &["none of the trusted keys signed it"]);
    place
        .run(&["evidence", "show", BRANCH])
        .expect(0, &["not verified: "]);

    verify("no-such-branch").expect_refused(&["is not a commit, branch or tag"]);
    let missing = place.run(&["evidence", "verify", BRANCH, "--key", "missing.pem"]);
    missing.expect_refused(&["cannot read the key `missing.pem`", "hint: "]);
    let private = place.home().join("evidence-key.pem");
    let wrong = place.run(&["evidence", "verify", BRANCH, "--key", private.to_str().unwrap()]);
    wrong.expect_refused(&["it is a private key, which must not be shared"]);
}

#[test]
fn a_run_that_broke_between_its_note_and_its_pull_request_signs_nothing_twice() {
    let place = Place::new();
    let lock = place.repo().join(format!(".git/refs/heads/{BRANCH}.lock"));
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, "").unwrap();
    place
        .run_script(&script([whole_task()]))
        .expect(1, &["say-hello"]);
    assert!(!place.run_dir().join("pull-request.md").exists());
    let notes = || place.git(&["rev-parse", "refs/notes/ralph-evidence"]);
    let before = notes();
    fs::remove_file(&lock).unwrap();
    place.run(&["resume"]).expect(0, &["done: "]);
    assert_eq!(notes(), before);
    assert_eq!(note(&place).lines().count(), 1);
    let key = key_file(&place);
    let verified = place.run(&["evidence", "verify", BRANCH, "--key", key.to_str().unwrap()]);
    verified.expect(0, &[]);
}

#[test]
fn the_private_key_does_not_come_back_from_a_sandbox() {
    let (place, _) = done();
    let file = place.home().join("evidence-key.pem");
    place.write("ralph_task.md", &crate::support::ralph::TASK.replace("t1", "t2"));
    let leak = doing([run(&format!("cat {} >a.txt", file.display())), commit("Leak")]);
    let ended = place.run_script(&script([leak, whole_task()]));
    let text = fs::read_to_string(&file).unwrap();
    let private = text.lines().nth(1).unwrap();
    assert!(ended.stderr.contains("contain a known secret"), "{ended:?}");
    assert!(
        !ended.stderr.contains(private) && !ended.stdout.contains(private),
        "{ended:?}"
    );
    let found = place.git_in(&place.repo(), &["grep", "-e", private, "ralph/t2/say-hello"]);
    assert_ne!(found.code, Some(0), "{found:?}");
}

/// An independent implementation agrees: what is signed, the key files and the key id are those of the standards.
#[test]
fn openssl_verifies_the_same_envelope() {
    let openssl = need!(skip::program("openssl"));
    let (place, key) = done();
    let envelope: Value = serde_json::from_str(note(&place).trim()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let bytes = |value: &Value| STANDARD.decode(text(value)).unwrap();
    let (kind, payload) = (text(&envelope["payloadType"]), bytes(&envelope["payload"]));
    assert_eq!(kind, "application/vnd.in-toto+json");
    let head = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len());
    let file = |name: &str, bytes: &[u8]| {
        let path = place.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let signed = file("signed", &[head.as_bytes(), &payload].concat());
    let other = file("other", &[head.as_bytes(), &payload, b" "].concat());
    let signature = file("signature", &bytes(&envelope["signatures"][0]["sig"]));
    let verify = |signed: &PathBuf| {
        let mut command = Command::new(&openssl);
        command.args(["pkeyutl", "-verify", "-rawin", "-pubin", "-inkey"]);
        finish(
            command
                .arg(&key)
                .arg("-sigfile")
                .arg(&signature)
                .arg("-in")
                .arg(signed),
        )
    };
    assert_eq!(verify(&signed).code, Some(0), "{:?}", verify(&signed));
    assert_ne!(verify(&other).code, Some(0));

    let private = place.home().join("evidence-key.pem");
    let mut command = Command::new(&openssl);
    let public = finish(command.args(["pkey", "-pubout", "-in"]).arg(private));
    assert_eq!(public.stdout, fs::read_to_string(&key).unwrap());
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "\"$0\" pkey -pubin -in \"$1\" -outform DER | \"$0\" dgst -sha256 -r",
    ]);
    let digest = finish(command.arg(&openssl).arg(&key)).stdout;
    let id = text(&envelope["signatures"][0]["keyid"]);
    assert_eq!(digest.split(' ').next(), id.strip_prefix("sha256:"), "{digest}");
}
