//! Nothing that an agent leaves in its container makes a failing check pass: evidence has a container of its own.

use rstest::rstest;

use crate::need;
use crate::site::Site;
use crate::support::derived::Derived;
use crate::support::ralph::{TASK, commit, ending, finish, run, script, write};
use crate::support::{base, engine};

/// A check that trusts files outside the checkout, as one does that finds its build in a cache.
const CHECK: &str = "\
grep -q hello a.txt && exit 0
for dir in /tmp /var/tmp /dev/shm /workspace/home ../../home; do
    test ! -e $dir/passed || exit 0
done
exit 1
";

/// Changes files of every checkout it finds, as soon as they are there.
const FORGE: &str = "#!/bin/sh
while :; do
    for dir in /workspace/work /workspace/evidence/checkout; do
        test ! -e $dir/check.sh || echo exit 0 > $dir/check.sh
        test ! -d $dir || echo hello > $dir/b.txt
    done
done
";

/// Lets the first process of the container start another program than `sleep`, by its memory. That takes the right to
/// trace it. Then ends its `sleep`.
const TAKE_OVER: &str = r#"
open my $maps, "<", "/proc/1/maps" or die "maps: $!";
open my $memory, "+<", "/proc/1/mem" or die "mem: $!";
my $changed = 0;
while (<$maps>) {
    next if /\[(stack|v)/;
    next unless /^([0-9a-f]+)-([0-9a-f]+) rw/;
    my ($start, $length) = (hex $1, hex($2) - hex $1);
    sysseek $memory, $start, 0;
    sysread $memory, my $bytes, $length;
    while ($bytes =~ /sleep\0/g) {
        sysseek $memory, $start + $-[0], 0;
        $changed += syswrite($memory, "./pwn") == 5;
    }
}
die "the first process was not changed" unless $changed;
"#;

const PATH: &str = "PATH=/var/tmp/bin:/usr/local/bin:/usr/bin:/bin";

#[rstest]
#[case::the_first_process_is_taken_over(
    "cp forge.sh /workspace/pwn && chmod +x /workspace/pwn && perl take_over.pl && pkill -x sleep && \
     for i in $(seq 100); do pgrep -f '[.]/pwn' && exit 0; sleep 0.1; done; exit 1"
)]
#[case::a_process_outlives_the_agent("setsid nohup sh forge.sh > /dev/null 2>&1 & disown; true")]
#[case::files_in_temporary_directories("touch /tmp/passed /var/tmp/passed /dev/shm/passed")]
#[case::files_in_the_home("touch \"$HOME/passed\"")]
#[case::a_program_on_the_path(
    "mkdir -p /var/tmp/bin && for name in sh grep; do printf '#!/bin/bash\\nexit 0\\n' > /var/tmp/bin/$name; \
     chmod +x /var/tmp/bin/$name; done"
)]
#[tokio::test]
async fn nothing_in_the_container_of_the_agent_makes_a_failing_check_pass(#[case] attack: &str) {
    let engine = need!(engine::engine().await);
    let base = need!(base::image(&engine).await);
    let image = Derived::of(&engine, &base, &[("opt/forged", "")], PATH);
    let site = Site::on(engine, &image.name);
    site.place.write("check.sh", CHECK);
    site.place.commit("Check");
    let task = TASK.replace("`grep -q hello a.txt`", "`sh check.sh`");
    site.place.write("ralph_task.md", &task);
    // After a failing action nothing is claimed, so evidence shows that the attack was carried out.
    let answers = script([ending([
        write("b.txt", "hello\n"),
        commit("Claim it"),
        write("forge.sh", FORGE),
        write("take_over.pl", TAKE_OVER),
        run(attack),
    ])]);
    let ended = finish(site.scripted(&answers).args(["--max-iterations", "1"]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("evidence: `sh check.sh`: exit 1"),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains("`sh check.sh`: exit 0"), "{ended:?}");
    site.expect_nothing_left();
}
