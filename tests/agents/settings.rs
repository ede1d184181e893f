//! What an agent program is started with: its environment as the kernel has it, and its own files.

use std::fs;

use rstest::rstest;

use crate::bench::{Bench, Program, Within, one_session};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::finish;

/// Is in settings of the host that no agent may see.
const MARK: &str = "a-mark-of-the-host";

/// Finds the program above the shell that runs this, and writes down its variables, but for those with a credential.
fn look(program: Program) -> String {
    format!(
        "pid=$$; until [ \"$(cat /proc/$pid/comm)\" = {} ]; do pid=$(cut -d' ' -f4 /proc/$pid/stat); done; \
         tr '\\0' '\\n' </proc/$pid/environ | grep -v -e KEY= -e TOKEN= | sort >environment.txt; \
         cat \"$CODEX_HOME\"/config.toml >>environment.txt 2>/dev/null; \
         git add environment.txt && git commit --quiet --message 'Look around'",
        program.name()
    )
}

#[rstest]
#[case::claude(Program::Claude, &[
    "IS_SANDBOX=1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
    "CLAUDE_CODE_MAX_RETRIES=0",
    "CLAUDE_CONFIG_DIR=",
])]
#[case::codex(Program::Codex, &[
    "CODEX_HOME=",
    "check_for_update_on_startup = false",
    "enabled = false",
    "request_max_retries = 0",
    "stream_max_retries = 0",
])]
#[tokio::test(flavor = "multi_thread")]
async fn a_program_starts_with_safe_settings_and_none_of_the_host(
    #[case] program: Program,
    #[case] expected: &[&str],
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let mut sessions = one_session();
    sessions[0].insert(0, Turn::run(look(program)));
    let bench = need!(Bench::within(within, program, Teller::of(sessions)).await);
    let home = bench.place.path().join("home");
    for (name, text) in [
        (".claude/CLAUDE.md", MARK.to_owned()),
        (
            ".claude/settings.json",
            format!("{{\"env\": {{\"MARKED\": \"{MARK}\"}}}}"),
        ),
        (
            ".claude.json",
            format!("{{\"mcpServers\": {{\"{MARK}\": {{\"command\": \"false\"}}}}}}"),
        ),
        (".codex/AGENTS.md", MARK.to_owned()),
        (
            ".codex/config.toml",
            format!("developer_instructions = \"{MARK}\""),
        ),
    ] {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let ended = finish(bench.ralph(&["run"]).env("OF_THE_HOST", MARK));
    ended.expect(0, &["done: "]);
    let seen = bench.handed_back("environment.txt");
    let lines: Vec<&str> = seen.lines().collect();
    for text in expected {
        assert!(
            lines.iter().any(|line| line.starts_with(text)),
            "{text} is not in {seen}"
        );
    }
    assert!(!seen.contains(MARK), "{seen}");
    // `local` has the user's own home; where there is a wall, it is on the other side.
    let at_home = format!("HOME={}", home.display());
    assert_eq!(
        lines.contains(&at_home.as_str()),
        within == Within::Directory,
        "{seen}"
    );
    for asked in bench.server.asked() {
        assert!(!asked.body.to_string().contains(MARK), "{}", asked.body);
    }
}
