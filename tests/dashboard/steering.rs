//! What a person asks of a run from its pages.

use crate::browser::{Browser, Dashboard};
use crate::need;
use crate::support::ralph::{Held, Place, eventually};

#[test]
fn a_person_steers_a_run_without_a_shell() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let held = Held::start(&place);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let run = place.run_id();
    browser.open(&dashboard.url(&format!("/runs/{run}/notes")));
    browser.type_text("[name=name]", "drafts");
    browser.type_text("[name=trigger]", "before the end");
    browser.type_text("[name=instruction]", "remove <b>draft.txt</b>");
    browser.click("form[data-api$=signs] button");
    browser.wait_for_text("form[data-api$=signs] output", "asked for");
    // A task with a mistake is not saved, and the mistake is shown at once.
    browser.open(&dashboard.url(&format!("/runs/{run}/task")));
    let task = browser.eval("return document.getElementById('task').value");
    let task = task.as_str().unwrap().to_owned();
    browser.type_text("#task", "# No frontmatter and no checkbox");
    browser.wait_for_text("#findings", "error");
    browser.click("form[data-api$=task] button.primary");
    eventually("the edit is refused", || {
        browser.eval("return document.querySelector('form[data-api$=task] output').className") == "failed"
    });
    browser.type_text("#task", &format!("{}\nMind the drafts.\n", task.trim_end()));
    browser.click("[data-review]");
    browser.wait_for_text("#review", "+ Mind the drafts.");
    browser.click("form[data-api$=task] button.primary");
    browser.wait_for_text("form[data-api$=task] output", "asked for");
    browser.open(&dashboard.url(&format!("/runs/{run}")));
    browser.click("[data-post$=pause]");
    browser.wait_for_text("#overview", "pause");
    held.let_go();
    browser.wait_for_text("#headline", "paused");
    assert_eq!(browser.eval("return document.title.startsWith('paused:')"), true);
    held.live.wait().expect(3, &["paused"]);
    let guardrails = place.noted("guardrails.md");
    assert!(guardrails.contains("remove <b>draft.txt</b>"), "{guardrails}");
    browser.open(&dashboard.url(&format!("/runs/{run}/notes")));
    browser.wait_for_text("#files", "remove <b>draft.txt</b>");
    browser.open(&dashboard.url(&format!("/runs/{run}/diff")));
    browser.wait_for_text("#changes", "draft.txt");
    let complaints = browser.complaints();
    let others: Vec<&String> = complaints.iter().filter(|one| !one.contains("/task")).collect();
    assert!(others.is_empty(), "{others:?}");
}
