//! What commands see of the host: nothing that was not given to them.

use std::collections::BTreeMap;

use ralph::exec::Command;

use crate::bench::Bench;

contract![
    Any:
        no_variable_of_the_host_leaks,
        variables_of_the_spec_are_seen,
        variables_of_the_command_win,
        home_and_the_temporary_directory_are_inside,
        text_is_utf8
];

async fn environment(bench: &Bench, command: Command) -> BTreeMap<String, String> {
    let exit = bench.exec(command).await;
    let text = exit.stdout.text();
    text.split_terminator('\0')
        .filter_map(|entry| entry.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

async fn no_variable_of_the_host_leaks(bench: &Bench) {
    let theirs = environment(bench, Command::new("env").arg("-0")).await;
    let ours: Vec<(String, String)> = std::env::vars().collect();
    assert!(
        ours.iter().any(|(name, _)| name == "CARGO_MANIFEST_DIR"),
        "there is nothing to leak"
    );
    for (name, value) in ours {
        let given = ["PATH", "LANG"].contains(&name.as_str());
        assert!(
            given || theirs.get(&name) != Some(&value),
            "{name} of the host is seen"
        );
    }
}

async fn variables_of_the_spec_are_seen(bench: &Bench) {
    let theirs = environment(bench, Command::new("env").arg("-0")).await;
    assert_eq!(theirs.get("FROM_SPEC").unwrap(), "of the spec");
}

async fn variables_of_the_command_win(bench: &Bench) {
    let command = Command::new("env")
        .arg("-0")
        .env("FROM_SPEC", "mine")
        .env("HOME", "/elsewhere");
    let theirs = environment(bench, command).await;
    assert_eq!(theirs.get("FROM_SPEC").unwrap(), "mine");
    assert_eq!(theirs.get("HOME").unwrap(), "/elsewhere");
}

async fn home_and_the_temporary_directory_are_inside(bench: &Bench) {
    let made = "cd && : > here && test -w . && file=$(mktemp) && test -f \"$file\" && rm \"$file\"";
    bench.prints(made).await;
    let home = bench.prints("printf %s \"$HOME\"").await;
    assert_ne!(home, std::env::var("HOME").unwrap_or_default());
    bench
        .sandbox
        .files()
        .read(&std::path::Path::new(&home).join("here"), 10)
        .await
        .unwrap();
}

async fn text_is_utf8(bench: &Bench) {
    assert_eq!(bench.prints("printf '\u{e9}' | wc -m").await.trim(), "1");
}
