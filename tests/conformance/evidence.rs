//! Evidence starts from nothing: no file of the agent's home, temporary directory or caches is found through a variable.

use std::collections::BTreeSet;
use std::path::Path;

use ralph::exec::{Command, Discard};
use ralph::sandbox::{EvidenceSpace, Sandbox};

use crate::bench::Bench;

contract![
    Any:
        evidence_has_a_home_and_a_temporary_directory_of_its_own,
        a_later_evidence_run_finds_nothing_of_an_earlier_one,
        the_agent_finds_its_files_after_evidence,
        evidence_has_no_variables_but_those_given,
        a_sandbox_for_evidence_has_nothing_of_the_agent,
        a_sandbox_for_evidence_that_was_left_is_replaced
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

/// What a command prints in a sandbox for evidence; it must succeed.
async fn run_apart(apart: &dyn Sandbox, line: &str) -> String {
    let exit = apart
        .exec_trusted(&Command::shell(line), &mut Discard)
        .await
        .unwrap();
    assert!(exit.success(), "{line}: {} {}", exit.status, exit.stderr.text());
    exit.stdout.text()
}

/// How many sandboxes the run has.
async fn count(bench: &Bench) -> usize {
    let listed = bench.provider.list().await.unwrap();
    listed
        .iter()
        .filter(|listed| listed.run.as_ref() == Some(&bench.spec.run))
        .count()
}

async fn a_sandbox_for_evidence_has_nothing_of_the_agent(bench: &Bench) {
    bench.prints(LEAVE).await;
    bench
        .prints("echo left > left; echo left > /tmp/left-by-the-agent")
        .await;
    let stay = "( ( LEFT_BY_THE_AGENT=1 exec sleep 300 ) > /dev/null 2>&1 & )";
    bench.prints(stay).await;
    let before = count(bench).await;
    let created = bench.provider.create_for_evidence(&bench.spec).await.unwrap();
    if let Some(apart) = created {
        let apart = apart.as_ref();
        apart.verify().await.unwrap();
        assert_ne!(apart.id(), bench.sandbox.id());
        let found = "find \"$HOME\" \"$PWD\" /tmp /var/tmp -name 'left*' 2> /dev/null; \
                     grep -ls 'LEFT_BY_THE_AGENT[=]' /proc/[0-9]*/environ; true";
        assert_eq!(run_apart(apart, found).await, "");
        assert_eq!(run_apart(apart, "printf %s \"$FROM_SPEC\"").await, "of the spec");
        run_apart(apart, "echo evidence > from-evidence").await;
        apart.close().await.unwrap();
        assert_eq!(count(bench).await, before);
    }
    let files = bench
        .prints("cat left; ls from-evidence 2> /dev/null; rm -f /tmp/left-by-the-agent")
        .await;
    assert_eq!(files, "left\n");
    bench.sandbox.end_processes().await.unwrap();
}

async fn a_sandbox_for_evidence_that_was_left_is_replaced(bench: &Bench) {
    let before = count(bench).await;
    let Some(left) = bench.provider.create_for_evidence(&bench.spec).await.unwrap() else {
        return;
    };
    run_apart(left.as_ref(), "echo left > left; echo left > \"$HOME/left\"").await;
    // As if its process had ended.
    drop(left);
    let next = bench
        .provider
        .create_for_evidence(&bench.spec)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(count(bench).await, before + 1);
    run_apart(next.as_ref(), "test ! -e left && test ! -e \"$HOME/left\"").await;
    next.close().await.unwrap();
    assert_eq!(count(bench).await, before);
    bench.prints("echo alive").await;
}

/// The names of variables that `env` printed.
fn variables(printed: &str) -> BTreeSet<String> {
    let names = printed.lines().filter_map(|line| line.split_once('='));
    names.map(|(name, _)| name.to_owned()).collect()
}
