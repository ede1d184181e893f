//! The choice of a provider. Errors name the file and line.

use rstest::rstest;

use crate::support::ralph::{Place, finish};

const CONFIG: &str = ".agent-loop/config.json";

fn place(agent_loop: &str) -> Place {
    let place = Place::new();
    place.write("ralph.toml", "[agent]\nname = \"actions\"\n");
    place.write(CONFIG, agent_loop);
    place
}

#[rstest]
#[case::an_unknown_type("{\n  \"type\": \"vmware\"\n}", ":2:11", "docker-sandbox")]
#[case::no_json("{\n  \"type\": \"tart\",\n", ":3:1", "EOF while parsing")]
#[case::no_image_for_a_mac("{\n\n  \"type\": \"tart\"\n}", ":3:11", "`tart` needs an image")]
#[case::memory_in_words(
    "{\"type\": \"docker\",\n \"memory_gb\": \"lots\"}",
    ":2:15",
    "a number of gigabytes"
)]
fn an_error_names_the_file_and_line(#[case] text: &str, #[case] line: &str, #[case] said: &str) {
    let ended = place(text).run(&["selftest"]);
    ended.expect_refused(&[&format!("{CONFIG}{line}"), said]);
}

/// None of them is installed here, so each reports what is missing.
#[rstest]
#[case::the_file_alone(&[], "`tart` is not installed")]
#[case::a_flag_wins(&["--type", "daytona"], "DAYTONA_API_KEY")]
#[case::a_flag_wins_again(&["--type", "docker-sandbox"], "`sbx`")]
fn a_flag_overrides_the_file(#[case] flags: &[&str], #[case] said: &str) {
    let place = place("{\"type\": \"tart\", \"base_image\": \"mac:1\"}");
    let nothing = place.path().join("bin");
    std::fs::create_dir(&nothing).unwrap();
    let mut command = place.ralph(&[&["selftest", "--set", "sandbox.image=x"], flags].concat());
    let ended = finish(command.env("PATH", nothing));
    ended.expect_refused(&[said]);
}

#[test]
fn ralph_toml_wins_over_the_file_of_agent_loop() {
    let place = place("{\"type\": \"tart\", \"base_image\": \"mac:1\"}");
    place.write(
        "ralph.toml",
        "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"local\"\n",
    );
    let ended = place.run(&["selftest", "--escapes", "--json"]);
    ended.expect(0, &[]);
    assert!(
        ended.stdout.contains("\"provider\": \"local\""),
        "{}",
        ended.stdout
    );
}
