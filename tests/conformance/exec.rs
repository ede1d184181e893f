//! Commands: what they get, how they end, what is ended with them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ralph::exec::{Command, Discard, ExitStatus, OutputLine, OutputStream};
use ralph::sandbox::SandboxErrorKind;

use crate::bench::Bench;

contract![
    Any:
        arguments_arrive_exactly,
        variables_arrive_exactly,
        values_are_not_among_the_arguments,
        without_a_cwd_it_starts_in_the_root,
        a_cwd_is_absolute_or_relative_to_the_root,
        input_arrives_byte_for_byte,
        without_input_the_stream_is_empty,
        unread_input_holds_nothing_up,
        the_two_streams_are_kept_apart,
        every_exit_code_is_reported,
        a_signal_is_reported,
        a_missing_program_is_an_error,
        a_file_that_is_no_program_is_an_error,
        a_missing_directory_is_an_error,
        a_timeout_ends_the_command_and_its_children,
        a_timeout_ends_a_child_that_left_the_group,
        a_timeout_ends_what_ignores_being_asked,
        silence_ends_the_command,
        output_keeps_an_idle_timer_from_ringing,
        a_child_that_holds_the_streams_is_waited_for_then_ended,
        a_command_that_left_in_time_is_neither_idle_nor_late,
        output_of_a_child_that_lets_go_in_time_is_received,
        a_child_in_the_background_goes_on,
        dropping_the_future_ends_the_command,
        parallel_commands_do_not_cross,
        a_hundred_quick_commands_all_end_well,
        the_duration_is_measured
];

async fn arguments_arrive_exactly(bench: &Bench) {
    let args = [
        "",
        " ",
        "two words",
        "a\nb\n",
        "it's \"quoted\"",
        "$HOME `id` $(id) \\ *",
        "-n",
        "--",
        "\u{e9}\u{1f980}",
        "\t\r\u{1b}[0m",
    ];
    let exit = bench.exec(Command::new("printf").arg("%s\\0").args(args)).await;
    let expected: Vec<u8> = args.iter().flat_map(|arg| arg.bytes().chain([0])).collect();
    assert_eq!(exit.stdout.complete().unwrap(), expected);
}

async fn variables_arrive_exactly(bench: &Bench) {
    for value in [
        "",
        "plain",
        "two\nlines",
        "it's $HOME `id` \"x\"",
        "\u{e9}\u{1f980}",
        "a=b=c",
    ] {
        let exit = bench
            .exec(Command::new("printenv").args(["-0", "VALUE"]).env("VALUE", value))
            .await;
        assert_eq!(
            exit.stdout.complete().unwrap(),
            [value.as_bytes(), b"\0"].concat()
        );
    }
}

async fn values_are_not_among_the_arguments(bench: &Bench) {
    let line = "tr '\\0' ' ' < /proc/$$/cmdline; tr '\\0' ' ' < /proc/$PPID/cmdline 2> /dev/null; true";
    let exit = bench
        .exec(Command::shell(line).env("TOKEN", "val-7f3a").stdin(*b"val-7f3a"))
        .await;
    assert!(exit.success());
    assert!(!exit.stdout.text().contains("val-7f3a"), "{}", exit.stdout.text());
}

async fn without_a_cwd_it_starts_in_the_root(bench: &Bench) {
    assert_eq!(
        bench.prints("pwd -P").await.trim_end(),
        bench.sandbox.root().to_str().unwrap()
    );
}

async fn a_cwd_is_absolute_or_relative_to_the_root(bench: &Bench) {
    let dir = bench.path("a b/c");
    bench.sandbox.files().mkdir(&dir).await.unwrap();
    for cwd in [dir.as_path(), "a b/c".as_ref()] {
        let exit = bench.exec(Command::new("pwd").cwd(cwd)).await;
        assert_eq!(exit.stdout.text().trim_end(), dir.to_str().unwrap());
    }
}

async fn input_arrives_byte_for_byte(bench: &Bench) {
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000_003).collect();
    let exit = bench
        .exec(Command::new("cat").stdin(bytes.clone()).keep(4_000_000))
        .await;
    assert!(exit.stdout.complete().unwrap() == bytes);
}

async fn without_input_the_stream_is_empty(bench: &Bench) {
    let exit = bench.exec(Command::new("wc").arg("-c")).await;
    assert_eq!(exit.stdout.text().trim(), "0");
    let exit = bench.exec(Command::new("wc").arg("-c").stdin(Vec::new())).await;
    assert_eq!(exit.stdout.text().trim(), "0");
}

async fn unread_input_holds_nothing_up(bench: &Bench) {
    for line in [
        "exit 3",
        "exec <&-; sleep 0.1; exit 3",
        "head -c 5 > /dev/null; exit 3",
    ] {
        let exit = bench
            .exec(Command::shell(line).stdin(vec![b'x'; 10_000_000]))
            .await;
        assert_eq!(exit.status, ExitStatus::Code(3), "{line}");
    }
}

async fn the_two_streams_are_kept_apart(bench: &Bench) {
    let line = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let mut lines: Vec<OutputLine> = Vec::new();
    let exit = bench
        .sandbox
        .exec(&Command::shell(line), &mut lines)
        .await
        .unwrap();
    assert_eq!(exit.stdout.text(), "out 1\nout 2\nout 3\n");
    assert_eq!(exit.stderr.text(), "err 1\nerr 2\nerr 3\n");
    let of = |stream| {
        let of_stream = lines.iter().filter(move |line| line.stream == stream);
        of_stream.map(|line| line.text.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of(OutputStream::Stdout), ["out 1", "out 2", "out 3"]);
    assert_eq!(of(OutputStream::Stderr), ["err 1", "err 2", "err 3"]);
}

async fn every_exit_code_is_reported(bench: &Bench) {
    for code in 0..=255 {
        let exit = bench.shell(&format!("exit {code}")).await;
        assert_eq!(exit.status, ExitStatus::Code(code));
        assert_eq!(exit.success(), code == 0);
    }
}

async fn a_signal_is_reported(bench: &Bench) {
    // Under `nohup` every command is started with SIGHUP ignored, and cannot be ended by it.
    let signals: &[i32] = if hangup_is_ignored() {
        &[6, 9, 15]
    } else {
        &[1, 6, 9, 15]
    };
    for &signal in signals {
        let exit = bench.shell(&format!("kill -{signal} $$; sleep 5")).await;
        assert_eq!(exit.status, ExitStatus::Signal(signal));
    }
}

/// Whether this process, and so each that it starts, ignores SIGHUP.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

async fn a_missing_program_is_an_error(bench: &Bench) {
    for program in ["no-such-program", "/no/such/program", "./no-such-program"] {
        match bench.try_exec(Command::new(program)).await {
            Err(error) => {
                assert_eq!(error.kind(), SandboxErrorKind::NotStarted, "{error:?}");
                assert!(error.to_string().contains(&format!("`{program}`")), "{error}");
            }
            other => panic!("{program}: {other:?}"),
        }
    }
}

async fn a_file_that_is_no_program_is_an_error(bench: &Bench) {
    bench
        .sandbox
        .files()
        .write(&bench.path("note"), b"hello", 0o644)
        .await
        .unwrap();
    let tried = bench.try_exec(Command::new("./note")).await;
    assert_eq!(tried.unwrap_err().kind(), SandboxErrorKind::NotStarted);
}

async fn a_missing_directory_is_an_error(bench: &Bench) {
    let tried = bench.try_exec(Command::new("true").cwd("no/such/dir")).await;
    assert_eq!(tried.unwrap_err().kind(), SandboxErrorKind::NotStarted);
}

async fn a_timeout_ends_the_command_and_its_children(bench: &Bench) {
    let line = format!("({}) & sleep 30", bench.heartbeat("beat"));
    let started = Instant::now();
    let exit = bench
        .exec(Command::shell(line).timeout(Duration::from_millis(300)))
        .await;
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert!(!bench.lives("beat").await);
}

async fn a_timeout_ends_a_child_that_left_the_group(bench: &Bench) {
    let beat = bench.heartbeat("beat");
    let line = format!("setsid sh -c '{beat}' > /dev/null 2>&1 & sleep 30");
    let exit = bench
        .exec(Command::shell(line).timeout(Duration::from_millis(300)))
        .await;
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert!(!bench.lives("beat").await);
}

async fn a_timeout_ends_what_ignores_being_asked(bench: &Bench) {
    let line = format!("trap '' TERM; {}", bench.heartbeat("beat"));
    let exit = bench
        .exec(Command::shell(line).timeout(Duration::from_millis(200)))
        .await;
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert!(!bench.lives("beat").await);
}

async fn silence_ends_the_command(bench: &Bench) {
    let line = format!("echo one; {}", bench.heartbeat("beat"));
    let exit = bench
        .exec(Command::shell(line).idle(Duration::from_secs(3)))
        .await;
    assert_eq!(exit.status, ExitStatus::Idle);
    assert_eq!(exit.stdout.text(), "one\n");
    assert!(!bench.lives("beat").await);
}

async fn output_keeps_an_idle_timer_from_ringing(bench: &Bench) {
    let line = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 0.5; done";
    let exit = bench
        .exec(Command::shell(line).idle(Duration::from_secs(5)))
        .await;
    assert_eq!(exit.status, ExitStatus::Code(0));
}

async fn a_child_that_holds_the_streams_is_waited_for_then_ended(bench: &Bench) {
    for leave in ["sh -c", "setsid sh -c"] {
        let beat = bench.heartbeat("beat");
        let exit = bench
            .shell(&format!("{leave} '{beat}' & echo done; exit 4"))
            .await;
        assert_eq!(exit.status, ExitStatus::Code(4), "{leave}");
        assert!(exit.streams_held, "{leave}");
        assert_eq!(exit.stdout.text(), "done\n");
        assert!(exit.duration >= bench.spec.completion_grace);
        assert!(!bench.lives("beat").await, "{leave}");
    }
}

async fn a_command_that_left_in_time_is_neither_idle_nor_late(bench: &Bench) {
    let (limit, grace) = (Duration::from_secs(4), Duration::from_secs(6));
    let sandbox = bench.another(grace).await;
    let command = Command::shell("sleep 50 & exit 0").idle(limit).timeout(limit);
    let exit = sandbox.exec(&command, &mut Discard).await.unwrap();
    assert_eq!((exit.status, exit.streams_held), (ExitStatus::Code(0), true));
    sandbox.close().await.unwrap();
}

async fn output_of_a_child_that_lets_go_in_time_is_received(bench: &Bench) {
    let sandbox = bench.another(Duration::from_secs(60)).await;
    let command = Command::shell("(sleep 0.1; echo late) & exit 0");
    let exit = sandbox.exec(&command, &mut Discard).await.unwrap();
    assert!(!exit.streams_held);
    assert_eq!(exit.stdout.text(), "late\n");
    sandbox.close().await.unwrap();
}

async fn a_child_in_the_background_goes_on(bench: &Bench) {
    let beat = bench.heartbeat("beat");
    let exit = bench.shell(&format!("sh -c '{beat}' > /dev/null 2>&1 &")).await;
    assert!(!exit.streams_held);
    bench.goes_on("beat").await;
}

async fn dropping_the_future_ends_the_command(bench: &Bench) {
    let (near, far) = (bench.heartbeat("near"), bench.heartbeat("far"));
    let command = Command::shell(format!("setsid sh -c '{far}' & ({near}) & {near}"));
    let cancelled = async {
        bench.wait_for("near").await;
        bench.wait_for("far").await;
    };
    let mut output = Discard;
    tokio::select! {
        exit = bench.sandbox.exec(&command, &mut output) => panic!("{exit:?}"),
        () = cancelled => {}
    }
    bench.stops("near").await;
    bench.stops("far").await;
}

async fn parallel_commands_do_not_cross(bench: &Bench) {
    let commands = (0..20).map(|number| {
        let line =
            format!("for i in 1 2 3; do echo {number}; echo {number} >&2; sleep 0.02; done; exit {number}");
        async move { (number, bench.shell(&line).await) }
    });
    for (number, exit) in join_all(commands).await {
        let expected = format!("{number}\n").repeat(3);
        assert_eq!(exit.status, ExitStatus::Code(number));
        assert_eq!(
            (exit.stdout.text(), exit.stderr.text()),
            (expected.clone(), expected)
        );
    }
}

async fn a_hundred_quick_commands_all_end_well(bench: &Bench) {
    for number in 0..100 {
        let exit = bench.exec(Command::new("echo").arg(number.to_string())).await;
        assert_eq!(exit.stdout.text(), format!("{number}\n"));
        assert!(!exit.streams_held);
    }
}

async fn the_duration_is_measured(bench: &Bench) {
    let started = Instant::now();
    let exit = bench.shell("sleep 0.2").await;
    let measured = Duration::from_millis(200)..=started.elapsed();
    assert!(measured.contains(&exit.duration), "{:?}", exit.duration);
}
