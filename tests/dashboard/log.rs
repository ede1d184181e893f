//! The log of a long run: one page at a time, addresses of lines, and the download.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::need;
use crate::support::browser::{Browser, Dashboard};
use crate::support::ralph::{Place, doing, run, script, waited_for, whole_task};

/// How many lines the first page has.
const PAGE: u64 = 500;

/// A place with a run whose log has more lines than three pages.
fn talkative() -> Place {
    let place = Place::new();
    // Of each command only the first lines are reported.
    let counts = (0..17).map(|part| {
        run(&format!(
            "seq -f 'number %g' {} {}",
            part * 100 + 1,
            part * 100 + 100
        ))
    });
    place
        .run_script(&script([doing(counts), whole_task()]))
        .expect(0, &["done"]);
    place
}

fn line_ids(browser: &Browser) -> Vec<u64> {
    let ids = browser
        .eval("return [...document.querySelectorAll('#log li')].map((one) => Number(one.id.slice(1)))");
    ids.as_array().unwrap().iter().filter_map(Value::as_u64).collect()
}

#[test]
fn earlier_and_later_lines_come_by_the_page() {
    let browser = need!(Browser::start());
    let place = talkative();
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let log = format!("/runs/{}/log", place.run_id());
    browser.open(&dashboard.url(&log));
    let newest = line_ids(&browser);
    assert_eq!(newest.len() as u64, PAGE);
    browser.click("#earlier");
    assert!(waited_for(|| browser.path().contains("before=")));
    let earlier = line_ids(&browser);
    assert_eq!(earlier.len() as u64, PAGE);
    assert!(earlier.last() < newest.first());
    // The script adds nothing to a page that has an end.
    browser.wait_for_text("#connection", "");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(line_ids(&browser), earlier);
    browser.click("a[href*='after=']");
    assert!(waited_for(|| browser.path().contains("after=")));
    assert_eq!(line_ids(&browser), newest);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn of_many_new_lines_only_the_newest_are_shown_and_none_while_the_log_is_not_followed() {
    let browser = need!(Browser::start());
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.open(&dashboard.url(&format!("/runs/{}/log", place.run_id())));
    browser.wait_for_text("#connection", "");
    let shows = |text: &str| {
        waited_for(|| {
            let last = browser.eval("return document.querySelector('#log').lastElementChild.textContent");
            last.as_str().unwrap().contains(text)
        })
    };
    add_lines(&place, 1..=3000);
    assert!(shows("number 3000 "));
    assert_eq!(line_ids(&browser).len(), 1000);
    browser.click("#follow");
    add_lines(&place, 3001..=3010);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(shows("number 3000 "));
    browser.click("#follow");
    assert!(shows("number 3010 "));
    let first = line_ids(&browser)[0];
    assert_eq!(line_ids(&browser).len(), 1000);
    browser.click("#earlier");
    assert!(waited_for(|| browser.path().contains("before=")));
    assert!(*line_ids(&browser).last().unwrap() < first);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Adds lines of output to the log of a run that ended.
fn add_lines(place: &Place, numbers: RangeInclusive<u32>) {
    let id = place.run_id();
    let lines = numbers.map(|number| {
        let text = format!("number {number} of many");
        let event = json!({"at": "2026-01-01T00:00:00Z", "run": id, "event": "output", "text": text});
        format!("{event}\n")
    });
    let log = place.run_dir().join("events.jsonl");
    let mut log = OpenOptions::new().append(true).open(log).unwrap();
    log.write_all(lines.collect::<String>().as_bytes()).unwrap();
}

#[test]
fn the_address_of_a_line_leads_to_it_wherever_it_is() {
    let browser = need!(Browser::start());
    let place = talkative();
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let log = format!("/runs/{}/log", place.run_id());
    browser.open(&dashboard.url(&log));
    let old = browser.eval(
        "return fetch(location.pathname.replace('/runs', '/api/runs') + '?search=number+7&limit=1&after=0')
         .then((answer) => answer.json()).then((log) => log.lines[0].id)",
    );
    assert!(!line_ids(&browser).contains(&old.as_u64().unwrap()));
    browser.open(&dashboard.url(&format!("{log}#e{old}")));
    browser.wait_for_path(&format!("{log}?at={old}"));
    browser.wait_for_text(&format!("#e{old}"), "number 7");
    assert_eq!(
        browser.eval("return document.querySelector('li:target').id"),
        format!("e{old}")
    );
    // The link of a line is such an address, also without a script.
    let link = browser.eval(&format!("return document.querySelector('#e{old} a').href"));
    assert_eq!(link, dashboard.url(&format!("{log}?at={old}#e{old}")));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_download_has_all_lines_and_is_sent_in_pieces() {
    let browser = need!(Browser::start());
    let place = talkative();
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.open(&dashboard.url(&format!("/runs/{}/log?search=number", place.run_id())));
    let answer = browser.eval(
        "return fetch(document.querySelector('a[download]').href)
         .then(async (answer) => [answer.headers.get('content-length'), await answer.text()])",
    );
    assert_eq!(
        answer[0],
        Value::Null,
        "the whole text was there before the first byte was sent"
    );
    let text = answer[1].as_str().unwrap();
    let count = (1..=1700)
        .filter(|number| text.contains(&format!("| number {number}\n")))
        .count();
    assert_eq!(count, 1700, "{text}");
}

#[test]
fn a_queued_run_is_shown_as_queued() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let file = place.path().join("script.json");
    std::fs::write(&file, script([whole_task()]).to_string()).unwrap();
    place
        .run(&["submit", "--script", file.to_str().unwrap()])
        .expect(0, &[]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.open(&dashboard.url(&format!("/runs/{}", place.run_id())));
    browser.wait_for_text("#headline", "queued");
    let title = browser.eval("return document.title");
    assert!(title.as_str().unwrap().starts_with("queued: "), "{title}");
    let icon = browser.eval("return document.getElementById('icon').getAttribute('href')");
    assert!(icon.as_str().unwrap().contains("/icon.svg"), "{icon}");
    assert_eq!(browser.complaints(), [""; 0]);
}
