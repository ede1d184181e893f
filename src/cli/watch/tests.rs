//! The view on a terminal of its own: what keys and news make of it.

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use rstest::rstest;
use serde_json::json;

use super::client::{LoggedLine, RunRows, WatchRequest, WatchedDiff, WatchedLogPage};
use super::draw::{Theme, draw, lay_out};
use super::keys::KeyEffect;
use super::overview::{RunExtras, RunOverview};
use super::state::{InputMode, RunTab, WatchNews, WatchState, Watched};

fn rows() -> RunRows {
    let row = |run: &str, state: &str, queue: Option<&str>, task: &str| {
        json!({
            "run": run, "state": state, "queue": queue, "task": task, "iterations": 3, "checkboxes": 2, "ticked": 1,
            "cost_usd": 0.0123, "unpriced_calls": 0, "updated": "2026-11-18T09:59:30Z",
        })
    };
    let runs = json!({"next": null, "runs": [
        row("r1", "done", None, "Say hello"),
        row("r2", "running", None, "Fix the login"),
        row("r3", "interrupted", Some("queued"), "Wait for a worker"),
        row("r4", "paused", None, "Ask a person"),
    ]});
    serde_json::from_value(runs).unwrap()
}

fn overview(run: &str, state: &str) -> WatchNews {
    let details = json!({
        "run": run, "state": state, "reason": null, "queue": null, "task": "Fix the login", "repository": "repo/.git",
        "branch": "ralph/fix-1", "iterations": 3, "loop_score": 0.25, "tokens": 1200, "cost_usd": 0.0123,
        "unpriced_calls": 0, "worked_seconds": 61, "pull_request": null,
        "checkboxes": [
            {"id": "M1.1", "text": "a.txt says hello", "ticked": true},
            {"id": "M1.2", "text": "b.txt says hello", "ticked": false},
        ],
        "interventions": [{"by": "ann", "what": "note: mind the gap", "state": "pending", "reason": null}],
    });
    let budgets = json!([
        {"name": "max_iterations", "unit": "iterations", "used": 3.0, "limit": 6.0},
        {"name": "max_wall_time_minutes", "unit": "seconds", "used": 290.0, "limit": 300.0},
    ]);
    WatchNews::Overview(Box::new(RunOverview {
        details: serde_json::from_value(details).unwrap(),
        budgets: Ok(serde_json::from_value(budgets).unwrap()),
    }))
}

fn listed() -> WatchState {
    let now: Timestamp = "2026-11-18T10:00:00Z".parse().unwrap();
    let mut state = WatchState::new("this host", None, now);
    state.update(WatchNews::Runs(rows()));
    state
}

/// A running run that is open.
fn opened() -> WatchState {
    let mut state = listed();
    press(&mut state, "j\n");
    state.update(overview("r2", "running"));
    state
}

/// Presses the keys of a text: `\n` is Enter, `\t` Tab, `\x1b` Esc.
fn press(state: &mut WatchState, keys: &str) -> KeyEffect {
    let codes = keys.chars().map(|c| match c {
        '\n' => KeyCode::Enter,
        '\t' => KeyCode::Tab,
        '\x1b' => KeyCode::Esc,
        c => KeyCode::Char(c),
    });
    codes.fold(KeyEffect::Nothing, |_, code| {
        state.press(KeyEvent::new(code, KeyModifiers::NONE))
    })
}

fn terminal(state: &mut WatchState, width: u16, height: u16, colour: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    lay_out(state, width, height);
    terminal
        .draw(|frame| draw(frame, state, Theme { colour }))
        .unwrap();
    terminal
}

/// What a person sees, without the spaces at the ends of lines.
fn shown(state: &mut WatchState, width: u16, height: u16) -> String {
    let terminal = terminal(state, width, height, false);
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let rows: Vec<String> = (0..height).map(|y| row(y).trim_end().to_owned()).collect();
    rows.join("\n")
}

fn lines(count: u64) -> WatchedLogPage {
    let line = |number: u64| LoggedLine {
        at: "2026-11-18T09:00:00Z".to_owned(),
        style: "plain".to_owned(),
        text: format!("line {number}"),
    };
    WatchedLogPage {
        lines: (1..=count).map(line).collect(),
        next: count,
        earlier: None,
    }
}

fn log_of(state: &WatchState, page: WatchedLogPage, is_first: bool) -> WatchNews {
    let watched = state.watched();
    WatchNews::Log {
        watched,
        page,
        is_first,
    }
}

#[test]
fn runs_are_grouped_by_what_they_need() {
    let mut state = listed();
    let extras = RunExtras {
        loop_score: Some(0.25),
        budget: Some(0.5),
    };
    state.update(WatchNews::Extras("r2".to_owned(), extras));
    insta::assert_snapshot!(shown(&mut state, 90, 14), @r"
    ralph watch: 4 runs on this host
      RUN       STATE       ITER TICKED LOOP BUDGET COST     ACTIVE TASK
    Needs you (1)
    > r4        paused      3    1/2    -    -      $0.0123  30s    Ask a person
    Running (1)
      r2        running     3    1/2    0.25 50%    $0.0123  30s    Fix the login
    Queued (1)
      r3        queued      3    1/2    -    -      $0.0123  30s    Wait for a worker
    Done (1)
      r1        done        3    1/2    -    -      $0.0123  30s    Say hello



    ?: help  q: quit  Enter: open  p: pause/resume  r: rotate  n: note  s: sign  x: stop
    ");
}

#[test]
fn a_narrow_terminal_shows_what_matters_most() {
    let mut state = listed();
    insta::assert_snapshot!(shown(&mut state, 40, 10), @r"
    ralph watch: 4 runs on this host
      RUN       STATE       ITER TASK
    Needs you (1)
    > r4        paused      3    Ask a pers…
    Running (1)
      r2        running     3    Fix the lo…
    Queued (1)
      r3        queued      3    Wait for a…

    ?: help  q: quit  Enter: open
    ");
    press(&mut state, "G");
    assert!(
        shown(&mut state, 40, 10).contains("> r1"),
        "the selected run is in sight"
    );
}

#[test]
fn a_run_has_its_state_budgets_and_checkboxes() {
    let mut state = opened();
    insta::assert_snapshot!(shown(&mut state, 80, 24), @r"
    r2 Fix the login
    [1 Overview] 2 Log  3 Diff   16/16
    running, 3 iterations, 1 of 2 checkboxes
    branch       ralph/fix-1
    repository   repo/.git
    loop score   0.25 (1 is going in circles)
    used         $0.0123, 1200 tokens, 1m 1s

    Budgets
    iterations ██████████░░░░░░░░░░  50% 3 of 6
    time       ███████████████████░  97% 4m 50s of 5m 0s

    Checkboxes
    [x] M1.1 a.txt says hello
    [ ] M1.2 b.txt says hello

    Requests
    pending  note: mind the gap (ann)





    ?: help  q: back  Tab: next  p: pause/resume  r: rotate  n: note  s: sign
    ");
}

#[rstest]
#[case(1, 1)]
#[case(2, 3)]
#[case(10, 5)]
#[case(40, 10)]
#[case(300, 100)]
fn every_size_can_be_drawn_in_every_mode(#[case] width: u16, #[case] height: u16) {
    for keys in [
        "",
        "?",
        "x",
        "n",
        "nlong text 日本語 long text",
        "s",
        "\t",
        "\t\t",
        "/",
    ] {
        let mut state = opened();
        state.update(WatchNews::Requested(Err("refused. ".repeat(50))));
        let news = log_of(&state, lines(100), true);
        state.update(news);
        press(&mut state, keys);
        terminal(&mut state, width, height, true);
        let mut list = listed();
        press(&mut list, keys);
        terminal(&mut list, width, height, true);
    }
}

#[test]
fn nothing_is_coloured_without_colours() {
    let mut state = listed();
    let has_colour = |terminal: &Terminal<TestBackend>| {
        let cells = &terminal.backend().buffer().content;
        cells
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colour(&terminal(&mut state, 80, 20, true)));
    assert!(!has_colour(&terminal(&mut state, 80, 20, false)));
}

#[test]
fn no_runs_say_how_to_start_one() {
    let mut state = WatchState::new("this host", None, Timestamp::UNIX_EPOCH);
    assert!(shown(&mut state, 60, 8).contains("Looking for runs"));
    state.update(WatchNews::Runs(RunRows::default()));
    assert!(shown(&mut state, 60, 8).contains("`ralph run` starts one"));
    for keys in ["j", "k", "p", "r", "n", "s", "x", "\n", "G", "\x1b"] {
        assert_eq!(press(&mut state, keys), KeyEffect::Nothing, "{keys:?}");
        assert_eq!(state.mode, InputMode::Browse, "{keys:?}");
    }
    assert_eq!(press(&mut state, "q"), KeyEffect::Quit { interrupted: false });
}

#[rstest]
#[case::pause("p", WatchRequest::Pause)]
#[case::rotate("r", WatchRequest::Rotate)]
#[case::stop("xy", WatchRequest::Stop)]
#[case::note("nmind q ?\n", WatchRequest::Note("mind q ?".to_owned()))]
#[case::sign("ssmall steps\na large diff\nsplit it\n", WatchRequest::Sign {
    name: "small steps".to_owned(), trigger: "a large diff".to_owned(), instruction: "split it".to_owned(),
})]
fn a_key_asks_for_something_of_the_selected_or_open_run(#[case] keys: &str, #[case] request: WatchRequest) {
    let wanted = KeyEffect::Request {
        run: "r2".to_owned(),
        request,
    };
    let mut state = listed();
    press(&mut state, "j");
    assert_eq!(press(&mut state, keys), wanted);
    assert_eq!(press(&mut opened(), keys), wanted);
}

#[test]
fn the_key_for_a_pause_resumes_a_run_at_rest() {
    let mut state = listed();
    assert_eq!(
        state.selected.as_deref(),
        Some("r4"),
        "the first that needs a person"
    );
    let resume = KeyEffect::Request {
        run: "r4".to_owned(),
        request: WatchRequest::Resume,
    };
    assert_eq!(press(&mut state, "p"), resume);
    for (keys, says) in [("jj", "is queued"), ("j", "is done")] {
        press(&mut state, keys);
        assert_eq!(press(&mut state, "p"), KeyEffect::Nothing);
        let text = &state.status.as_ref().unwrap().text;
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn a_prompt_can_be_left_and_takes_nothing_that_a_terminal_would_obey() {
    let mut state = opened();
    assert_eq!(press(&mut state, "nno\x1b"), KeyEffect::Nothing);
    assert_eq!(state.mode, InputMode::Browse);
    press(&mut state, "n   \n");
    assert!(state.status.as_ref().unwrap().text.contains("empty"));
    press(&mut state, "na\u{202e}b\u{9b}c");
    state.paste("d\x1b[2J\ne");
    assert_eq!(
        press(&mut state, "\n"),
        KeyEffect::Request {
            run: "r2".to_owned(),
            request: WatchRequest::Note("abcd[2J e".to_owned())
        }
    );
    press(&mut state, "x");
    assert!(shown(&mut state, 60, 10).contains("Stop run r2 now? y/n"));
    assert_eq!(press(&mut state, "n"), KeyEffect::Nothing);
    assert_eq!(state.status.as_ref().unwrap().text, "Not stopped.");
}

#[test]
fn keys_move_between_pages_and_back() {
    let mut state = opened();
    let tab = |state: &WatchState| state.open.as_ref().map(|open| open.tab);
    press(&mut state, "\t");
    assert_eq!(tab(&state), Some(RunTab::Log));
    press(&mut state, "\t\t");
    assert_eq!(tab(&state), Some(RunTab::Overview));
    press(&mut state, "3");
    assert_eq!(state.watched().tab, RunTab::Diff);
    assert!(shown(&mut state, 60, 10).contains("Loading"));
    press(&mut state, "?");
    assert!(shown(&mut state, 60, 20).contains("Ctrl-C"));
    assert!(!shown(&mut state, 40, 8).contains("this help"));
    press(&mut state, "G");
    assert!(shown(&mut state, 40, 8).contains("this help"));
    press(&mut state, "q");
    assert_eq!(
        (tab(&state), &state.mode),
        (Some(RunTab::Diff), &InputMode::Browse),
        "a key ends the help"
    );
    press(&mut state, "q");
    assert_eq!((tab(&state), state.watched()), (None, Watched::default()));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(interrupt), KeyEffect::Quit { interrupted: true });
}

#[test]
fn a_log_is_followed_scrolled_and_searched() {
    let mut state = opened();
    press(&mut state, "2");
    let news = log_of(&state, lines(100), true);
    state.update(news);
    let text = shown(&mut state, 60, 10);
    assert!(
        text.contains("line 100") && text.contains("100/100 following"),
        "{text}"
    );
    press(&mut state, "kk");
    let text = shown(&mut state, 40, 10);
    assert!(!text.contains("line 99\n") && text.contains("line 98"), "{text}");
    press(&mut state, "G");
    let news = log_of(&state, lines(1), false);
    state.update(news);
    assert!(shown(&mut state, 40, 10).contains("101/101"));

    press(&mut state, "/needle\n");
    assert_eq!(state.watched().search, "needle");
    // What was fetched without the search comes late.
    let late = WatchNews::Log {
        watched: Watched {
            search: String::new(),
            ..state.watched()
        },
        page: lines(5),
        is_first: true,
    };
    state.update(late);
    assert!(shown(&mut state, 40, 10).contains("Loading"));
    let news = log_of(&state, WatchedLogPage::default(), true);
    state.update(news);
    let text = shown(&mut state, 60, 10);
    assert!(
        text.contains("No line has this text.") && text.contains("with `needle`"),
        "{text}"
    );
}

#[test]
fn a_log_keeps_its_newest_lines_only() {
    let mut state = opened();
    press(&mut state, "2");
    let news = log_of(&state, lines(4000), true);
    state.update(news);
    let news = log_of(&state, lines(3000), false);
    state.update(news);
    assert!(shown(&mut state, 40, 10).contains("5000/5000"));
}

#[test]
fn a_diff_shows_changes_and_says_what_is_missing() {
    let mut state = opened();
    press(&mut state, "3");
    state.update(WatchNews::Diff("r2".to_owned(), WatchedDiff::default()));
    assert!(shown(&mut state, 60, 10).contains("No changes yet"));
    let diff = Some("diff --git a/a b/a\n+new\n-old\n".to_owned());
    state.update(WatchNews::Diff(
        "other".to_owned(),
        WatchedDiff {
            diff: diff.clone(),
            is_cut: false,
        },
    ));
    assert!(
        shown(&mut state, 60, 10).contains("No changes yet"),
        "another run's"
    );
    state.update(WatchNews::Diff(
        "r2".to_owned(),
        WatchedDiff { diff, is_cut: true },
    ));
    let text = shown(&mut state, 60, 10);
    assert!(
        text.contains("+new\n-old\nNot all of it is shown: `ralph diff r2`"),
        "{text}"
    );
}

#[test]
fn a_source_that_does_not_answer_is_shown_until_it_does() {
    let mut state = listed();
    state.update(WatchNews::Failed("cannot reach http://host.".to_owned()));
    let text = shown(&mut state, 60, 12);
    assert!(text.contains("cannot reach http://host. Trying again."), "{text}");
    assert!(text.contains("r2"), "what was known stays");
    state.update(WatchNews::Reached);
    assert!(!shown(&mut state, 60, 12).contains("cannot reach"));
}

#[test]
fn a_run_that_is_gone_is_no_longer_selected() {
    let mut state = listed();
    press(&mut state, "G");
    assert_eq!(state.selected.as_deref(), Some("r1"));
    let mut fewer = rows();
    fewer.runs.retain(|row| row.run != "r1");
    state.update(WatchNews::Runs(fewer));
    assert_eq!(state.selected.as_deref(), Some("r4"));
}
