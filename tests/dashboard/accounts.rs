//! What a run used, its pull request, its changes since the last look, and the settings of the service.

use crate::need;
use crate::support::browser::{Browser, Dashboard};
use crate::support::ralph::{Held, Place, doing, run, script, whole_task};

#[test]
fn budgets_are_bars_and_boxes_have_costs() {
    let browser = need!(Browser::start());
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.open(&dashboard.url(&format!("/runs/{}", place.run_id())));
    browser.wait_for_text("#overview", "1 of 6");
    browser.wait_for_text(".boxes", "$0.0005, iteration 1");
    let filled = browser.eval("return document.querySelector('[aria-labelledby=budget-1]').value");
    assert_eq!(filled, 1);
    browser.open(&dashboard.url(&format!("/runs/{}/pull-request", place.run_id())));
    browser.wait_for_text("#request h2", "Say hello");
    browser.wait_for_text("#request .file", "M1.1");
    browser.open(&dashboard.url("/settings"));
    browser.wait_for_text("table", "dashboard.mode");
    browser.wait_for_text("table", "AUTONOMOUS");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// A mistake in the configuration, made while a run is paused, takes its budgets from the page and nothing else.
#[test]
fn a_page_with_a_missing_part_is_shown() {
    let browser = need!(Browser::start());
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    place.write("ralph.toml", "[budget\n");
    browser.open(&dashboard.url(&format!("/runs/{}", place.run_id())));
    browser.wait_for_text("main", "A part of this page is missing");
    browser.wait_for_text("main", "ralph.toml");
    browser.wait_for_text("#overview", "verified b.txt says hello");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_diff_offers_what_changed_since_the_last_look() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let held = Held::start(&place);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let diff = format!("/runs/{}/diff", place.run_id());
    browser.open(&dashboard.url(&diff));
    assert_eq!(browser.text("#since"), "");
    // As if the first iteration had been there when this browser looked last.
    browser.eval(&format!("localStorage.setItem('seen:{}', 1)", place.run_id()));
    held.let_go();
    held.live.wait().expect(0, &["done"]);
    browser.open(&dashboard.url(&diff));
    browser.wait_for_text("#changes", "draft.txt");
    browser.wait_for_text("#since", "after iteration 1");
    browser.click("#since");
    browser.wait_for_path(&format!("{diff}?since=1"));
    let changes = browser.text("#changes");
    assert!(
        changes.contains("a.txt") && !changes.contains("draft.txt"),
        "{changes}"
    );
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn colours_of_programs_are_shown_without_inline_style() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let prints = run(r#"printf '\033[31m<b onclick=x>red</b>\033[0m plain\033[3"mno\n'"#);
    place
        .run_script(&script([doing([prints]), whole_task()]))
        .expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.open(&dashboard.url(&format!("/runs/{}/log?kinds=output", place.run_id())));
    browser.wait_for_text(".sgr-red", "<b onclick=x>red</b>");
    browser.wait_for_text("#log", " plain\\u001b[3\"mno");
    let colours = browser.eval(
        "return [getComputedStyle(document.querySelector('.sgr-red')).color, getComputedStyle(document.body).color]",
    );
    assert_ne!(colours[0], colours[1]);
    assert_eq!(
        browser.eval("return document.querySelectorAll('[style], #log b').length"),
        0
    );
    assert_eq!(browser.complaints(), [""; 0]);
}
