//! Bytes: all of them arrive, where they belong, and fill the memory of no process.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ralph::exec::{Command, Discard, ExitStatus, OutputLine, OutputSink, OutputStream};

use crate::guest_session::{GuestSession, in_time};

/// More than the guest needs, and far less than what goes through it here.
const LITTLE_MEMORY: u64 = 24 * 1024 * 1024;

#[tokio::test]
async fn a_gigabyte_passes_through_a_small_guest() {
    let bench = crate::need!(GuestSession::open().await);
    let exit = bench.shell("head -c 1000000000 /dev/zero").await;
    assert_eq!(exit.stdout.total(), 1_000_000_000);
    assert!(bench.memory_of_the_guest() < LITTLE_MEMORY);
}

#[tokio::test]
async fn bytes_go_in_and_come_out_as_they_are() {
    let bench = crate::need!(GuestSession::open().await);
    let bytes: Vec<u8> = (0..30_000_019_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let exit = bench
        .exec(Command::new("cat").stdin(bytes.clone()).keep(200_000_000))
        .await;
    assert!(exit.stdout.complete().unwrap() == bytes);
    assert!(bench.memory_of_the_guest() < LITTLE_MEMORY);
}

#[tokio::test]
async fn input_goes_no_faster_than_it_is_read() {
    let bench = crate::need!(GuestSession::open().await);
    let command = Command::shell("sleep 0.5; wc -c").stdin(vec![7; 100_000_000]);
    let exit = bench.exec(command).await;
    assert_eq!(exit.stdout.text(), "100000000\n");
    assert!(bench.memory_of_the_guest() < LITTLE_MEMORY);
}

/// Takes nothing before it is allowed to.
struct Reluctant {
    allowed: mpsc::Receiver<()>,
    bytes: usize,
}

impl OutputSink for Reluctant {
    fn line(&mut self, _line: OutputLine) {}

    fn wants_lines(&self) -> bool {
        false
    }

    fn bytes(&mut self, _stream: OutputStream, bytes: &[u8]) {
        // Once the other end is dropped nothing is waited for any more. Other tasks must not wait with this one.
        let _ = tokio::task::block_in_place(|| self.allowed.recv());
        self.bytes += bytes.len();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_slow_listener_slows_its_own_command_down_and_no_other() {
    let bench = Arc::new(crate::need!(GuestSession::open().await));
    let (allow, allowed) = mpsc::channel();
    // A command whose output is not read yet does not count as silent.
    let command = Command::shell("head -c 50000000 /dev/zero; : > printed").idle(Duration::from_secs(5));
    let slow = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move {
            let mut sink = Reluctant { allowed, bytes: 0 };
            let exit = bench.session.exec(&command, &mut sink).await.unwrap();
            (exit, sink.bytes)
        }
    });
    for _ in 0..50 {
        assert_eq!(bench.prints("echo quick").await, "quick\n");
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(
        !bench.path("printed").exists(),
        "all was printed before it was read"
    );
    drop(allow);
    let (exit, taken) = in_time(slow).await.unwrap();
    assert_eq!((exit.status, exit.streams_held), (ExitStatus::Code(0), false));
    assert_eq!((exit.stdout.total(), taken), (50_000_000, 50_000_000));
    assert!(bench.memory_of_the_guest() < LITTLE_MEMORY);
}

#[tokio::test]
async fn two_hundred_commands_at_once_do_not_cross() {
    let bench = crate::need!(GuestSession::open().await);
    let commands = (0..200_u32).map(|number| {
        let line = "head -c 2000000 /dev/zero | tr '\\0' x; cat; echo $OWN >&2; exit $CODE";
        let own = format!("own-{number}");
        let command = Command::shell(line)
            .env("OWN", &own)
            .env("CODE", (number % 256).to_string())
            .stdin(own.clone())
            .keep(8_000_000);
        let bench = &bench;
        async move { (number, own, bench.exec(command).await) }
    });
    for (number, own, exit) in join_all(commands).await {
        assert_eq!(exit.status, ExitStatus::Code((number % 256).cast_signed()));
        let stdout = exit.stdout.complete().unwrap();
        let (flood, rest) = stdout.split_at(2_000_000);
        assert!(flood.iter().all(|byte| *byte == b'x'), "{number}");
        assert_eq!(rest, own.as_bytes());
        assert_eq!(exit.stderr.text(), format!("{own}\n"));
    }
    assert_eq!(bench.prints("echo on").await, "on\n");
}

#[tokio::test]
async fn late_output_never_appears_in_another_command() {
    let bench = crate::need!(GuestSession::open().await);
    let line =
        "(trap '' TERM; for n in $(seq 4000); do echo late; echo late >&2; sleep 0.005; done) & exit 0";
    let (noise, ()) = tokio::join!(bench.shell(line), async {
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            let exit = bench.shell("echo out; echo err >&2").await;
            assert_eq!(
                (exit.stdout.text(), exit.stderr.text()),
                ("out\n".into(), "err\n".into())
            );
        }
    });
    assert_eq!((noise.status, noise.streams_held), (ExitStatus::Code(0), true));
    assert!(noise.stdout.text().lines().all(|line| line == "late"));
}

#[tokio::test]
async fn a_command_that_closed_its_streams_is_waited_for() {
    let bench = crate::need!(GuestSession::open().await);
    let exit = bench.shell("exec <&- >&- 2>&-; sleep 0.4; exit 7").await;
    assert_eq!((exit.status, exit.streams_held), (ExitStatus::Code(7), false));
    assert!(exit.duration >= Duration::from_millis(400));
}

#[tokio::test]
async fn input_of_a_command_that_reads_nothing_holds_nothing_up() {
    let bench = crate::need!(GuestSession::open().await);
    let command = Command::shell("exec <&-; sleep 0.2; echo through").stdin(vec![0; 20_000_000]);
    assert_eq!(bench.exec(command).await.stdout.text(), "through\n");
    let command = Command::shell("head -c 3; sleep 0.2").stdin(vec![b'x'; 20_000_000]);
    assert_eq!(bench.exec(command).await.stdout.text(), "xxx");
}

#[tokio::test]
async fn arguments_that_are_too_long_are_an_error_and_not_the_end() {
    let bench = crate::need!(GuestSession::open().await);
    for length in [3_000_000, 20_000_000] {
        let command = Command::new("true").args(vec!["x".repeat(100_000); length / 100_000]);
        let error = bench.try_exec(command).await.unwrap_err();
        let source = std::error::Error::source(&error)
            .unwrap()
            .downcast_ref::<std::io::Error>();
        assert_eq!(source.unwrap().kind(), std::io::ErrorKind::ArgumentListTooLong);
    }
    let mut output = Discard;
    let command = Command::new("true").arg("x".repeat(100_000));
    assert!(bench.session.exec(&command, &mut output).await.unwrap().success());
}
