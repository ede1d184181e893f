use rstest::rstest;

use super::*;

fn hash(text: &str) -> String {
    let none = FailureStream::default();
    FailureSignature::new("make", 1, &none, &FailureStream::from(text)).hash
}

#[rstest]
#[case::iso("2026-01-02T03:04:05.678Z boom", "2027-11-12 13:14:15,9+02:00 boom")]
#[case::clock("[03:04:05] boom", "[23:59:59.123] boom")]
#[case::syslog("Jan  2 03:04:05 host app: boom", "Nov 16 13:14:15 host app: boom")]
#[case::rfc_2822("Fri, 02 Jan 2026 03:04:05 +0000 boom", "Mon, 16 Nov 2026 13:14:15 GMT boom")]
#[case::ctime("Fri Jan  2 03:04:05 2026 boom", "Mon Nov 16 13:14:15 2026 boom")]
#[case::date("Fri Jan  2 03:04:05 UTC 2026", "Mon Nov 16 13:14:15 CET 2026")]
#[case::date_12_hours("Fri 02 Jan 2026 03:04:05 AM UTC", "Mon 16 Nov 2026 01:14:15 PM UTC")]
#[case::slashes("2026/01/02 03:04:05 boom", "2026/11/16 13:14:15.123456 boom")]
#[case::us("1/2/2026, 3:04:05 AM boom", "11/16/2026, 1:14:15 PM boom")]
#[case::apache("[02/Jan/2026:03:04:05 +0000] boom", "[16/Nov/2026:13:14:15 +0100] boom")]
#[case::apache_error(
    "[Fri Jan 02 03:04:05.123456 2026] [pid 12:tid 34] x",
    "[Mon Nov 16 13:14:15.1 2026] [pid 567:tid 8] x"
)]
#[case::epoch("at 1767323045 boom", "at 1794834855 boom")]
#[case::epoch_fraction("at 1767323045.123 boom", "at 1794834855.9 boom")]
#[case::epoch_milliseconds("ts=1767323045123 boom", "ts=1794834855123 boom")]
#[case::compact("20260102T030405Z boom", "20261116T131415Z boom")]
#[case::file_name(
    "_logs/2026-01-02T03_04_05_678Z-debug.log",
    "_logs/2026-11-16T13_14_15_1Z-debug.log"
)]
#[case::glog(
    "E0102 03:04:05.678901   12345 a.cc:12] boom",
    "E1116 13:14:15.000001   67890 a.cc:12] boom"
)]
#[case::json(
    "{\"time\":\"2026-01-02T03:04:05Z\",\"msg\":\"boom\"}",
    "{\"time\":\"2026-11-16T13:14:15Z\",\"msg\":\"boom\"}"
)]
#[case::logfmt(
    "time=\"2026-01-02T03:04:05Z\" msg=boom",
    "time=\"2026-11-16T13:14:15Z\" msg=boom"
)]
#[case::seconds("failed in 0.12s", "failed in 13 seconds")]
#[case::milliseconds("took 3 ms", "took 1204ms")]
#[case::compound("took 1m23s", "took 2h 3m 4s")]
#[case::in_parentheses("\u{2717} adds (12 ms)", "\u{2717} adds")]
#[case::without_a_unit("duration_ms: 4.298161", "duration_ms: 12.5")]
#[case::total_time("Time: 0.014\nboom", "Time: 1 s, estimated 2 s\nboom")]
#[case::rules("-----\nboom", "---------\nboom")]
#[case::rate("912.4 runs/s, 3 MB/s", "1012.9 runs/s, 12.5 MB/s")]
#[case::address("at 0x7ffd00a1", "at 0xDEADBEEF01")]
#[case::bare_address("at 7ffd00a1b2c3", "at 55d0c0ffee12")]
#[case::java("no width in Shape@1b6d3586", "no width in Shape@77459d9")]
#[case::stack_offset("main.go:12 +0x1d", "main.go:12 +0x2f")]
#[case::pid_in_brackets("[pid 12] died", "[pid 4711] died")]
#[case::pid_equals("(pid=12) died", "(pid=4711) died")]
#[case::pid_upper_case("PID: 12 died", "PID: 4711 died")]
#[case::pid_of_a_program("worker[4711]: died", "worker[14712]: died")]
#[case::pid_in_parentheses("worker(4711): died", "worker(14712): died")]
#[case::pid_in_angles("worker<4711>: died", "worker<14712>: died")]
#[case::pid_alone("[4711] died", "[14712] died")]
#[case::syslog_pid("Jan  2 03:04:05 host cron[12]: died", "Jan  2 03:04:05 host cron[345]: died")]
#[case::node("(node:12) Warning: old", "(node:4711) Warning: old")]
#[case::valgrind("==12== Invalid read", "==4711== Invalid read")]
#[case::killed_job(
    "run.sh: line 3: 12 Segmentation fault  ./a",
    "run.sh: line 3:  4711 Segmentation fault ./a"
)]
#[case::rust_thread(
    "thread 'main' (12) panicked at a.rs:1:2",
    "thread 'main' (4711) panicked at a.rs:1:2"
)]
#[case::goroutine("goroutine 18 [running]:", "goroutine 7 [running]:")]
#[case::thread("Exception in thread Thread-3", "Exception in thread Thread-14")]
#[case::uuid(
    "job 01234567-89ab-cdef-0123-456789abcdef",
    "job ffffffff-0000-1111-2222-333333333333"
)]
#[case::port("connect 127.0.0.1:43211 refused", "connect 127.0.0.1:51022 refused")]
#[case::port_6("bind [::1]:43211", "bind [::1]:51022")]
#[case::port_by_name("port: 43211,", "port: 51022,")]
#[case::git_hash("HEAD is now at 1a2b3c4 Fix", "HEAD is now at d5e6f70 Fix")]
#[case::sha256(&format!("digest sha256:{}", "0a".repeat(32)), &format!("digest sha256:{}", "b1".repeat(32)))]
#[case::cargo_hash(
    "target/debug/deps/shapes-0123456789abcdef failed",
    "target/debug/deps/shapes-fedcba9876543210 failed"
)]
#[case::symbol_hash("shapes::area::h0123456789abcdef", "shapes::area::hfedcba9876543210")]
#[case::seed("Randomized with seed 12345", "Randomized with seed 6")]
#[case::seed_option("Using --randomly-seed=123", "Using --randomly-seed=456789")]
#[case::progress("10%\r50%\r100% done\nboom", "1%\r100% done\nboom")]
#[case::crlf("boom\r\nbang\r\n", "boom\nbang\n")]
#[case::temp_directory("no /tmp/abc.123/x", "no /var/folders/q1/w2/T/y/x")]
#[case::temp_file("no /tmp/tmpa1b2c3.txt", "no /tmp/tmpzz9xx1.txt")]
#[case::compiler_file("/usr/bin/ld: /tmp/ccaBcDeF.o: boom", "/usr/bin/ld: /tmp/ccghijkl.o: boom")]
#[case::colour("\u{1b}[31merror\u{1b}[0m", "error")]
#[case::spacing("a  b\t c", "a b c")]
#[case::fresh_build("   Compiling shapes v0.1.0\nerror: boom", "error: boom")]
fn what_differs_each_time_is_left_out(#[case] one: &str, #[case] other: &str) {
    assert_eq!(
        noise::normalise(&noise::plain_text(one)),
        noise::normalise(&noise::plain_text(other))
    );
}

#[rstest]
#[case::line_numbers("main.rs:12: boom", "main.rs:13: boom")]
#[case::places("main.c:10:20:30 boom", "main.c:10:20:31 boom")]
#[case::counts("3 tests failed", "4 tests failed")]
#[case::counts_after_a_time("[10:00:00] 3 tests failed", "[10:00:00] 4 tests failed")]
#[case::values("expected 3 got 4", "expected 3 got 5")]
#[case::values_in_brackets("expected [3] got [4]", "expected [3] got [5]")]
#[case::logged_values("10:00:00 expected [3] got [4]", "10:00:00 expected [5] got [4]")]
#[case::an_index("data[3]: no width", "data[4]: no width")]
#[case::dates("expected 2026-01-02", "expected 2026-01-03")]
#[case::compared_times("'2026-01-02 03:04:05' != 'x'", "'2026-01-03 03:04:05' != 'x'")]
#[case::names("no such file: a", "no such file: b")]
#[case::known_ports("connect 127.0.0.1:5432 refused", "connect 127.0.0.1:6379 refused")]
#[case::short_numbers("expected 0x1f", "expected 0x20")]
#[case::versions("needs 1.2.3", "needs 1.2.4")]
#[case::version_with_letters("needs 1.2.3s", "needs 1.2.4s")]
#[case::memory("exceeds 5m", "exceeds 6m")]
#[case::words("defaced", "effaced")]
#[case::make_levels("make[1]: *** Error 1", "make[2]: *** Error 1")]
#[case::numbers("index 1234567", "index 1234568")]
#[case::long_numbers("got 1234567890", "got 1234567891")]
#[case::temp_names("no /tmp/tmpa1b2c3/width", "no /tmp/tmpa1b2c3/height")]
#[case::plain_temp_names("no /tmp/width", "no /tmp/height")]
#[case::exit_codes("exit status 1", "exit status 2")]
#[case::processes("process 1 failed", "process 2 failed")]
#[case::identifiers("test_1a2b3c4 failed", "test_d5e6f70 failed")]
#[case::late(&format!("{}a", "x\n".repeat(3000)), &format!("{}b", "x\n".repeat(3000)))]
fn what_distinguishes_failures_stays(#[case] one: &str, #[case] other: &str) {
    assert_ne!(hash(one), hash(other));
}

#[test]
fn command_code_and_both_streams_are_part_of_a_failure() {
    let stream = FailureStream::from;
    let signature = |command, code, stdout, stderr| {
        FailureSignature::new(command, code, &stream(stdout), &stream(stderr))
    };
    let one = signature("make", 1, "a", "b");
    assert_eq!(one, signature("make", 1, "a", "b"));
    for other in [
        signature("make", 2, "a", "b"),
        signature("make test", 1, "a", "b"),
        signature("make", 1, "x", "b"),
        signature("make", 1, "a", "x"),
        signature("make", 1, "b", "a"),
    ] {
        assert_ne!(one.hash(), other.hash());
    }
}

#[rstest]
#[case::log_line("test connection ... FAILED\nretrying\n")]
#[case::summary_without_a_frame("FAILED tests/a.py::test_b - assert 1\n")]
#[case::bullet("  \u{25cf} adds\nFAIL a.test.js\n")]
#[case::go_line("--- FAIL: TestA (0.00s)\nwent on\n")]
#[case::list("failures:\n    disk\n    network\nnothing ran\n")]
#[case::prose("FAIL  the deployment > step 3\n")]
#[case::xml("<testcase name=\"a\"><failure/></testcase>")]
fn a_log_line_is_no_test(#[case] output: &str) {
    let stream = FailureStream::from(output);
    let signature = FailureSignature::new("make", 1, &stream, &FailureStream::default());
    assert_eq!(signature.tests(), &BTreeSet::new());
}

/// The failing tests of an output, as one text.
fn names(output: &str) -> String {
    let none = FailureStream::default();
    let signature = FailureSignature::new("test", 1, &FailureStream::from(output), &none);
    signature.tests().iter().cloned().collect::<Vec<_>>().join(", ")
}

#[rstest]
#[case::duration_in_go(
    "    --- FAIL: TestParse/1m30s (0.00s)\nFAIL\nFAIL\texample.com/a\t0.1s\n",
    "    --- FAIL: TestParse/2m45s (0.00s)\nFAIL\nFAIL\texample.com/a\t0.1s\n"
)]
#[case::duration_in_pytest(&pytest("test_x[5s]"), &pytest("test_x[30s]"))]
#[case::time_in_pytest(&pytest("test_x[03:04:05]"), &pytest("test_x[13:14:15]"))]
#[case::port_in_pytest(&pytest("test_x[localhost:43211]"), &pytest("test_x[localhost:51022]"))]
#[case::seed_in_pytest(&pytest("test_x[seed-1]"), &pytest("test_x[seed-2]"))]
fn the_parameters_of_a_test_are_part_of_its_name(#[case] one: &str, #[case] other: &str) {
    assert_ne!(names(one), "");
    assert_ne!(names(one), names(other));
}

#[rstest]
#[case::address(&pytest("test_x[<a.B object at 0x7ffd00a1>]"), &pytest("test_x[<a.B object at 0xDEADBEEF01>]"))]
#[case::temp_path(&pytest("test_x[/tmp/tmpa1b2c3/a]"), &pytest("test_x[/tmp/tmpzz9xx1/a]"))]
#[case::slow_suite(&jest("FAIL ./a.test.js"), &jest("FAIL ./a.test.js (5.123 s)"))]
fn what_can_only_be_noise_is_left_out_of_a_name(#[case] one: &str, #[case] other: &str) {
    assert_ne!(names(one), "");
    assert_eq!(names(one), names(other));
}

fn pytest(test: &str) -> String {
    format!("== short test summary info ==\nFAILED a.py::{test} - assert 1\n== 1 failed ==\n")
}

fn jest(suite: &str) -> String {
    format!("{suite}\n  \u{25cf} adds (2 s)\nTest Suites: 1 failed\nTests: 1 failed\n")
}

#[test]
fn a_report_lists_only_its_failures() {
    let report = "<testsuites><testsuite><testcase classname=\"a\" name=\"ok\"><system-out><![CDATA[<failure>]]></system-out></testcase>\
        <testcase classname='a' name='x > y'><failure message=\"no\"/></testcase>\
        <testcase name=\"z\" file=\"b.js\"><error/></testcase></testsuite></testsuites>";
    let signature = FailureSignature::new("make", 1, &FailureStream::from(report), &FailureStream::default());
    let names: Vec<&str> = signature.tests().iter().map(String::as_str).collect();
    assert_eq!(names, ["a.x > y", "b.js.z"]);
}

/// Ten megabytes with noise of different lengths, and a reason at the end.
fn long(stamp: &str, line: &str, reason: &str) -> String {
    let mut text = String::new();
    while text.len() < 10_000_000 {
        text.push_str(stamp);
        text.push_str(line);
    }
    text + "\n" + reason
}

#[test]
fn a_long_output_is_read_from_both_ends() {
    let one = long("03:04:05 ", "working\n", "no disk\n");
    let same = long("2026-01-02 03:04:05.678901 ", "working\n", "no disk\n");
    let other = long("03:04:05 ", "working\n", "no network\n");
    assert_eq!(hash(&one), hash(&same));
    assert_ne!(hash(&one), hash(&other));
    assert_ne!(hash(&one), hash(&format!("cannot start\n{one}")));
}

#[rstest]
#[case::one_line("x".repeat(3_000_000))]
#[case::wide_characters("\u{1f980}\u{e9}".repeat(500_000))]
#[case::wide_lines("\u{1f980}\n".repeat(500_000))]
#[case::digits("1".repeat(1_000_000))]
#[case::stamps("03:04:05 [".repeat(100_000))]
#[case::escapes("\u{1b}[\u{1b}]\u{1b}".repeat(100_000))]
#[case::tags("<testsuite <![CDATA[<".repeat(10_000))]
#[case::nothing(String::new())]
fn any_output_has_a_signature(#[case] output: String) {
    assert_eq!(hash(&output).len(), 16);
}
