//! What a person sees of a run: live, after a restart of the service, on a phone.

use std::path::PathBuf;

use crate::need;
use crate::support::browser::{Browser, Dashboard};
use crate::support::ralph::{Held, Place, script, waited_for, whole_task};

/// The pictures that the guide shows.
const PICTURES: [&str; 2] = ["dashboard-runs-run-light.png", "dashboard-runs-run-log-dark.png"];

/// Where a picture of a page is kept: with the documents, if it is one of theirs and they are to be made again, else where it
/// is removed.
fn picture(place: &Place, name: &str) -> PathBuf {
    let is_kept = PICTURES.contains(&name) && std::env::var_os("RALPH_UPDATE_REFERENCE").is_some();
    let dir = match is_kept.then(|| PathBuf::from(env!("CARGO_MANIFEST_DIR"))) {
        Some(root) => root.join("docs/guide/images"),
        None => place.path().to_owned(),
    };
    dir.join(name)
}

#[test]
fn a_run_is_watched_live_and_a_restart_of_the_service_loses_nothing() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let held = Held::start(&place);
    let mut dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.wait_for_text("#groups section:nth-of-type(2)", "running");
    browser.click("#groups section:nth-of-type(2) a.title");
    browser.wait_for_text("#headline", "running");
    browser.open(&dashboard.url(&format!("/runs/{}/log", place.run_id())));
    browser.wait_for_text("#log", "iteration 1 with");
    dashboard.end();
    browser.wait_for_text("#connection", "not connected");
    held.let_go();
    held.live.wait().expect(0, &["done"]);
    // Comes back by itself, with all lines.
    dashboard = Dashboard::start_on(&place, &dashboard.address);
    browser.wait_for_text("#log", "done: ");
    let lines = browser.eval("return [...document.querySelectorAll('#log li')].map((one) => one.id)");
    let mut sorted = lines.as_array().unwrap().clone();
    sorted.dedup();
    assert_eq!(sorted.len(), lines.as_array().unwrap().len());
    let all = browser.eval(
        "return fetch(`/api/runs/${document.getElementById('log').dataset.run}/log?after=0`).then((a) => a.json()).then((l) => \
         l.lines.map((one) => 'e' + one.id))",
    );
    assert_eq!(lines, all);
    assert!(
        browser
            .eval("return document.title")
            .as_str()
            .unwrap()
            .contains("Log")
    );
    let complaints = browser.complaints();
    let others: Vec<&String> = complaints
        .iter()
        .filter(|one| !one.contains("ERR_CONNECTION_REFUSED"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    drop(dashboard);
}

#[test]
fn every_page_of_a_run_fits_a_phone_and_both_colour_schemes() {
    let browser = need!(Browser::start());
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let run = place.run_id();
    let pages = [
        String::from("/"),
        "/new".to_owned(),
        "/credentials".to_owned(),
        "/workers".to_owned(),
        "/images".to_owned(),
        "/settings".to_owned(),
        format!("/runs/{run}"),
        format!("/runs/{run}/log"),
        format!("/runs/{run}/task"),
        format!("/runs/{run}/notes"),
        format!("/runs/{run}/iterations"),
        format!("/runs/{run}/iterations/1"),
        format!("/runs/{run}/compare?first=1&second=1"),
        format!("/runs/{run}/diff"),
        format!("/runs/{run}/pull-request"),
        format!("/runs/{run}/diagnosis"),
        format!("/runs/{run}/network"),
        format!("/runs/{run}/sandbox"),
    ];
    for (scheme, width) in [("light", 1280), ("dark", 390)] {
        browser.colour_scheme(scheme);
        browser.resize(width, 900);
        for page in &pages {
            browser.open(&dashboard.url(page));
            assert!(!browser.text("h1").is_empty(), "{page}: {}", browser.text("body"));
            let overflow = browser
                .eval("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(overflow, 0, "{page} is wider than {width} pixels");
            assert_eq!(browser.complaints(), [""; 0], "{page}");
            let name = page
                .trim_matches('/')
                .replace(&run, "run")
                .replace(['/', '?', '=', '&'], "-");
            let name = format!(
                "dashboard-{}-{scheme}.png",
                if name.is_empty() { "runs" } else { &name }
            );
            browser.screenshot(&picture(&place, &name));
        }
    }
}

#[test]
fn keys_lead_through_the_pages() {
    let browser = need!(Browser::start());
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let run = place.run_id();
    browser.open(&dashboard.url(&format!("/runs/{run}")));
    browser.press("gl");
    browser.wait_for_path(&format!("/runs/{run}/log"));
    browser.press("gd");
    browser.wait_for_path(&format!("/runs/{run}/diff"));
    browser.press("gr");
    browser.wait_for_path("/");
    browser.press("?");
    assert!(waited_for(|| browser.text("#keys").contains("all runs")));
}
