//! What a command can do to the guest, and see of it: nothing. Commands run as an ordinary user here, as in a sandbox.

use ralph::exec::Command;

use crate::guest_session::GuestSession;

/// The processes that a command might try: its keeper and the guest.
fn targets(bench: &GuestSession) -> Vec<String> {
    vec!["$PPID".to_owned(), bench.guest_id().to_string()]
}

/// Fails unless the shell line is refused for the guest and its keepers, and works for a process that is open.
async fn assert_refused(bench: &GuestSession, line: &str) {
    for target in targets(bench) {
        let exit = bench.shell(&line.replace("TARGET", &target)).await;
        assert!(
            !exit.success(),
            "{line} works on {target}: {}",
            exit.stdout.text()
        );
        assert!(
            exit.stderr.text().contains("ermission denied"),
            "{}",
            exit.stderr.text()
        );
    }
    let control = format!(
        "sleep 5 > control & exec 2>&1; sleep 0.05; {}; end=$?; kill %1 $!; exit $end",
        line.replace("TARGET", "$!")
    );
    let exit = bench.shell(&control).await;
    assert!(exit.success(), "{control}: {}", exit.stdout.text());
}

#[tokio::test]
async fn its_streams_cannot_be_written_to() {
    let bench = crate::need!(GuestSession::as_unique_user().await);
    assert_refused(&bench, "(echo forged > /proc/TARGET/fd/1)").await;
    for target in targets(&bench) {
        let every = format!(
            "for fd in 0 1 2 3 4 5 6 7 8 9 10; do (echo forged > /proc/{target}/fd/$fd) 2> /dev/null && echo $fd; done; true"
        );
        assert_eq!(bench.prints(&every).await, "");
    }
}

#[tokio::test]
async fn its_environment_memory_and_files_cannot_be_read() {
    let bench = crate::need!(GuestSession::as_unique_user().await);
    for line in [
        "tr '\\0' '\\n' < /proc/TARGET/environ",
        "(exec 3< /proc/TARGET/mem)",
        "ls /proc/TARGET/fd/",
        "readlink /proc/TARGET/cwd || { cat /proc/TARGET/maps; false; }",
    ] {
        assert_refused(&bench, line).await;
    }
}

#[tokio::test]
async fn a_command_sees_exactly_what_it_was_given() {
    let bench = crate::need!(GuestSession::open().await);
    let exit = bench.exec(Command::new("env").env("OWN", "1")).await;
    assert_eq!(exit.stdout.text(), "OWN=1\nPATH=/usr/bin:/bin\n");
}

#[tokio::test]
async fn no_value_is_among_the_arguments_of_any_process() {
    let bench = crate::need!(GuestSession::open().await);
    let line = format!(
        "cat /proc/$$/cmdline /proc/$PPID/cmdline /proc/{}/cmdline",
        bench.guest_id()
    );
    let command = Command::shell(line).env("TOKEN", "val-93b1").stdin(*b"val-93b1");
    let exit = bench.exec(command).await;
    assert!(exit.success() && !exit.stdout.text().contains("val-93b1"));
}

#[tokio::test]
async fn a_command_inherits_its_three_streams_and_nothing_else() {
    let bench = crate::need!(GuestSession::open().await);
    let (listed, others) = tokio::join!(
        // The shell's own look at the directory is over when it comes to the loop.
        bench.prints("sleep 0.2; for fd in /proc/$$/fd/*; do if [ -L $fd ]; then echo ${fd##*/}; fi; done"),
        futures_util::future::join_all((0..10).map(|_| bench.prints("sleep 0.4; echo on")))
    );
    assert_eq!(listed, "0\n1\n2\n");
    assert_eq!(others, vec!["on\n"; 10]);
}

#[tokio::test]
async fn each_command_has_a_session_of_its_own() {
    let bench = crate::need!(GuestSession::open().await);
    let session = "cut -d ' ' -f 6 /proc/$$/stat";
    let guest = std::fs::read_to_string(format!("/proc/{}/stat", bench.guest_id())).unwrap();
    let seen = [
        bench.prints(session).await.trim().to_owned(),
        bench.prints(session).await.trim().to_owned(),
        guest.split(' ').nth(5).unwrap().to_owned(),
    ];
    assert!(
        seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2],
        "{seen:?}"
    );
}
