//! How a person gets in, and out.

use crate::need;
use crate::support::browser::{Browser, Dashboard};
use crate::support::ralph::Place;

#[test]
fn a_link_shows_a_button_that_logs_in_once_and_leaves_no_secret_in_the_address() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let dashboard = Dashboard::start(&place);
    browser.open(&dashboard.url("/runs/rabc"));
    browser.wait_for_path("/login");
    assert!(browser.text("main").contains("ralph api-token login"));
    // Opening the link, as a preview of links does, does not use it up.
    browser.open(&dashboard.link);
    browser.open(&dashboard.link);
    browser.click("button.primary");
    browser.wait_for_path("/");
    assert!(browser.text("main").contains("Nothing runs"));
    let cookie = browser.eval("return document.cookie");
    assert_eq!(cookie, "", "a script can read the session");
    assert_eq!(browser.complaints(), [""; 0]);
    browser.open(&dashboard.link);
    browser.click("button.primary");
    browser.wait_for_text("main", "unknown, expired or used");
    browser.complaints();
    browser.open(&dashboard.url("/"));
    browser.wait_for_path("/");
    browser.click("[data-post='/api/logout']");
    browser.wait_for_path("/login");
    browser.open(&dashboard.url("/"));
    browser.wait_for_path("/login");
    assert_eq!(browser.complaints(), [""; 0]);
}
