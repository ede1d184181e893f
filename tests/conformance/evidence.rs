//! Evidence starts from nothing: no file of the agent's home, temporary directory or caches is found through a variable.

use std::collections::BTreeSet;
use std::path::Path;

use ralph::exec::{Command, Discard};
use ralph::sandbox::EvidenceSpace;

use crate::bench::Bench;

contract![
    Any:
        evidence_has_a_home_and_a_temporary_directory_of_its_own,
        a_later_evidence_run_finds_nothing_of_an_earlier_one,
        the_agent_finds_its_files_after_evidence,
        evidence_has_no_variables_but_those_given
];

/// Prints every file that the variables of evidence lead to.
const LEFT: &str = "for dir in \"$HOME\" \"$TMPDIR\" \"$XDG_CONFIG_HOME\" \"$XDG_CACHE_HOME\" \"$XDG_DATA_HOME\" \
                    \"$XDG_STATE_HOME\"; do find \"$dir\" -type f 2>/dev/null; done; true";

/// Leaves a file wherever commands look by themselves.
const LEAVE: &str = "for dir in \"$HOME\" \"${TMPDIR:-$HOME}\" \"$HOME/.cache\" \"$HOME/.config\" \"$HOME/.local/share\"; do \
                     mkdir -p \"$dir\" && echo left > \"$dir/left\" || exit 1; done";

async fn run(bench: &Bench, space: &EvidenceSpace, line: &str) -> String {
    let mut command = Command::shell(line);
    command.env.extend(space.env.clone());
    let exit = bench.sandbox.exec_trusted(&command, &mut Discard).await.unwrap();
    assert!(exit.success(), "{line}: {} {}", exit.status, exit.stderr.text());
    exit.stdout.text()
}

async fn start(bench: &Bench) -> EvidenceSpace {
    bench.sandbox.end_processes().await.unwrap();
    bench.sandbox.evidence_space().await.unwrap()
}

async fn evidence_has_a_home_and_a_temporary_directory_of_its_own(bench: &Bench) {
    bench.prints(LEAVE).await;
    let agent_home = bench.prints("printf %s \"$HOME\"").await;
    let space = start(bench).await;
    assert_eq!(run(bench, &space, LEFT).await, "");
    let made = "test \"$HOME\" != \"$0\" && : > \"$HOME/here\" && file=$(mktemp) && case $file in \"$TMPDIR\"/*) ;; *) exit 1 ;; esac";
    run(bench, &space, &made.replace("$0", &agent_home)).await;
    let checkout = format!("test ! -e '{}'", space.checkout.display());
    run(bench, &space, &checkout).await;
    assert!(!space.shared.is_empty(), "nothing says what is shared");
    bench.sandbox.end_evidence().await.unwrap();
}

async fn a_later_evidence_run_finds_nothing_of_an_earlier_one(bench: &Bench) {
    for _ in 0..2 {
        let space = start(bench).await;
        assert_eq!(run(bench, &space, LEFT).await, "");
        run(bench, &space, LEAVE).await;
        bench.sandbox.end_evidence().await.unwrap();
    }
}

async fn the_agent_finds_its_files_after_evidence(bench: &Bench) {
    bench.prints(LEAVE).await;
    bench.prints("mkdir -p work && echo mine > work/file").await;
    let space = start(bench).await;
    bench.sandbox.end_evidence().await.unwrap();
    bench.sandbox.end_evidence().await.unwrap();
    assert_eq!(bench.prints("cat work/file \"$HOME/left\"").await, "mine\nleft\n");
    let space_dir = EvidenceSpace::dir(bench.sandbox.root());
    assert!(space.checkout.starts_with(&space_dir));
    let gone = bench.shell(&format!("test -e '{}'", space_dir.display())).await;
    assert!(!gone.success(), "{} is still there", space_dir.display());
}

async fn evidence_has_no_variables_but_those_given(bench: &Bench) {
    let nothing = EvidenceSpace::default();
    let provider: BTreeSet<String> = variables(&run(bench, &nothing, "env").await);
    let leave = "for file in .profile .bashrc .bash_profile .zshenv; do \
                 echo 'export LEFT_BY_THE_AGENT=1' > \"$HOME/$file\" || exit 1; done; export LEFT_BY_THE_AGENT=1";
    bench.prints(leave).await;
    let space = start(bench).await;
    for name in variables(&run(bench, &space, "env").await) {
        let is_given = provider.contains(&name) || space.env.contains_key(&name);
        assert!(is_given, "{name} was not given");
    }
    let home = Path::new(&space.env["HOME"]);
    assert!(home.starts_with(bench.sandbox.root()), "{}", home.display());
    bench.sandbox.end_evidence().await.unwrap();
}

/// The names of variables that `env` printed.
fn variables(printed: &str) -> BTreeSet<String> {
    let names = printed.lines().filter_map(|line| line.split_once('='));
    names.map(|(name, _)| name.to_owned()).collect()
}
