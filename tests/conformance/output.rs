//! Output: every byte counted, little of it kept, all of it shown as it comes.

use ralph::exec::{Command, OutputLine, OutputSink};
use tokio::sync::mpsc;

use crate::bench::Bench;

contract![
    Any:
        bytes_are_kept_as_they_are,
        a_last_line_without_a_break_is_a_line,
        bytes_that_are_no_text_are_replaced_in_lines,
        a_long_line_arrives_in_pieces,
        lines_arrive_before_the_command_ends,
        half_a_line_waits_for_its_end,
        the_beginning_and_the_end_are_kept,
        a_flood_of_bytes_fills_no_memory,
        a_flood_of_lines_fills_no_memory
];

async fn lines_of(bench: &Bench, line: &str) -> Vec<String> {
    let mut lines: Vec<OutputLine> = Vec::new();
    let exit = bench
        .sandbox
        .exec(&Command::shell(line), &mut lines)
        .await
        .unwrap();
    assert!(exit.success(), "{}", exit.stderr.text());
    lines.into_iter().map(|line| line.text).collect()
}

async fn bytes_are_kept_as_they_are(bench: &Bench) {
    let bytes: Vec<u8> = (0..=255).collect();
    let exit = bench.exec(Command::new("cat").stdin(bytes.clone())).await;
    assert_eq!(exit.stdout.complete().unwrap(), bytes);
    assert_eq!(exit.stdout.total(), 256);
}

async fn a_last_line_without_a_break_is_a_line(bench: &Bench) {
    assert_eq!(lines_of(bench, "printf 'one\\ntwo'").await, ["one", "two"]);
    assert_eq!(lines_of(bench, "printf 'one\\n\\n'").await, ["one", ""]);
    assert_eq!(lines_of(bench, "true").await, [""; 0]);
}

async fn bytes_that_are_no_text_are_replaced_in_lines(bench: &Bench) {
    assert_eq!(lines_of(bench, "printf 'a\\377b\\n'").await, ["a\u{fffd}b"]);
}

async fn a_long_line_arrives_in_pieces(bench: &Bench) {
    let pieces = lines_of(bench, "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end").await;
    let (last, long) = pieces.split_last().unwrap();
    assert_eq!(last, "end");
    assert!(long.iter().all(|piece| piece.len() <= 64 * 1024));
    assert_eq!(long.concat(), "x".repeat(300_000));
}

/// Sends each line as it arrives.
struct LineSender(mpsc::UnboundedSender<String>);

impl OutputSink for LineSender {
    fn line(&mut self, line: OutputLine) {
        self.0.send(line.text).unwrap();
    }
}

async fn lines_arrive_before_the_command_ends(bench: &Bench) {
    let (sender, mut lines) = mpsc::unbounded_channel();
    let mut sink = LineSender(sender);
    // It does not end before its first line was received.
    let command = Command::shell("echo early; until [ -e go ]; do sleep 0.05; done; echo late");
    let (exit, ()) = tokio::join!(bench.sandbox.exec(&command, &mut sink), async {
        assert_eq!(lines.recv().await.unwrap(), "early");
        bench.prints(": > go").await;
    });
    assert!(exit.unwrap().success());
    assert_eq!(lines.recv().await.unwrap(), "late");
}

async fn half_a_line_waits_for_its_end(bench: &Bench) {
    assert_eq!(
        lines_of(bench, "printf ab; sleep 0.1; printf 'cd\\n'").await,
        ["abcd"]
    );
}

async fn the_beginning_and_the_end_are_kept(bench: &Bench) {
    let exit = bench.exec(Command::shell("seq 1 100000").keep(1000)).await;
    let text = exit.stdout.text();
    assert!(
        text.starts_with("1\n2\n") && text.ends_with("\n99999\n100000\n"),
        "{text}"
    );
    assert!(text.len() < 3000, "{}", text.len());
    assert_eq!(exit.stdout.total(), 588_895);
    assert!(exit.stdout.complete().is_none());
}

async fn a_flood_of_bytes_fills_no_memory(bench: &Bench) {
    let before = resident();
    let exit = bench
        .exec(Command::shell(format!("head -c {} /dev/zero", bench.flood)))
        .await;
    assert_eq!(exit.stdout.total(), bench.flood, "{}", exit.stderr.text());
    assert_small_growth(before);
}

/// Counts and forgets.
#[derive(Default)]
struct Count(u64);

impl OutputSink for Count {
    fn line(&mut self, line: OutputLine) {
        self.0 += line.text.len() as u64 + 1;
    }
}

async fn a_flood_of_lines_fills_no_memory(bench: &Bench) {
    let before = resident();
    let bytes = bench.flood / 10;
    let command = Command::shell(format!(
        "yes 0123456789012345678901234567890123456789 | head -c {bytes}"
    ));
    let mut count = Count::default();
    let exit = bench.sandbox.exec(&command, &mut count).await.unwrap();
    assert_eq!(exit.stdout.total(), bytes);
    assert!(count.0 >= bytes, "{}", count.0);
    assert_small_growth(before);
}

fn assert_small_growth(before: u64) {
    let growth = resident().saturating_sub(before);
    assert!(growth < 64 * 1024 * 1024, "grew by {growth} bytes");
}

/// The resident memory of this process; zero where the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next());
    kibibytes.map_or(0, |number| number.parse::<u64>().unwrap() * 1024)
}
