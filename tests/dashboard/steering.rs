//! What a person asks of a run from its pages.

use crate::need;
use crate::support::browser::{Browser, Dashboard};
use crate::support::ralph::{Held, Place, TASK, eventually, script, user_file, whole_task};

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

#[test]
fn a_shared_run_has_no_controls_and_leads_nowhere_else() {
    let browser = need!(Browser::start());
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let run = format!("/runs/{}", place.run_id());
    browser.open(&dashboard.url(&run));
    browser.click("summary");
    browser.click("form[data-api$=share] button");
    browser.wait_for_text("form[data-api$=share] output", "/login?secret=");
    let link = browser.text("form[data-api$=share] output");
    browser.click("[data-post='/api/logout']");
    browser.wait_for_path("/login");
    browser.open(&link);
    browser.click("button.primary");
    browser.wait_for_path(&run);
    assert_eq!(browser.complaints(), [""; 0]);
    for page in [
        "",
        "/log",
        "/task",
        "/notes",
        "/iterations",
        "/diff",
        "/diagnosis",
        "/network",
        "/sandbox",
    ] {
        browser.open(&dashboard.url(&format!("{run}{page}")));
        assert!(!browser.text("h1").is_empty(), "{page}");
        let controls = browser.eval(
            "return [...document.querySelectorAll('[data-post]:not([data-post=\"/api/logout\"]), form[data-api] button')].length",
        );
        assert_eq!(controls, 0, "{page}");
        assert_eq!(browser.complaints(), [""; 0], "{page}");
    }
    browser.open(&dashboard.url("/workers"));
    browser.wait_for_text("main", "may only look at run");
    browser.open(&dashboard.url("/"));
    browser.wait_for_path(&run);
}

#[test]
fn an_exported_run_opens_without_the_service_and_loads_nothing() {
    let browser = need!(Browser::start());
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.open(&dashboard.url(&format!("/runs/{}", place.run_id())));
    let html = browser
        .eval("return fetch(document.querySelector('a[download]').href).then((answer) => answer.text())");
    drop(dashboard);
    let file = place.path().join("export.html");
    std::fs::write(&file, html.as_str().unwrap()).unwrap();
    browser.complaints();
    browser.open(&format!("file://{}", file.display()));
    browser.wait_for_text("h1", "Say hello");
    browser.wait_for_text("body", "iteration 1 with");
    // The policy of the file allows its own style, and nothing is loaded.
    let line = browser.eval("return getComputedStyle(document.querySelector('pre')).borderTopWidth");
    assert_eq!(line, "1px");
    assert_eq!(
        browser.eval("return performance.getEntriesByType('resource').length"),
        0
    );
    assert_eq!(browser.eval("return document.scripts.length"), 0);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_mode_decides_which_forms_there_are_and_commands_run_in_the_sandbox() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let held = Held::start(&place);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let run = format!("/runs/{}", place.run_id());
    browser.open(&dashboard.url(&format!("{run}/notes")));
    browser.wait_for_text("main", "This service takes no notes");
    browser.open(&dashboard.url(&format!("{run}/sandbox")));
    assert!(!browser.text("main").contains("Commands"));
    drop(dashboard);
    let lint = "[dashboard]\nmode = \"DEBUG\"\n[dashboard.commands]\nlint = \"echo '<b>checked</b>'\"\n";
    user_file(&place, lint);
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.complaints();
    browser.open(&dashboard.url(&format!("{run}/notes")));
    browser.click("form[data-api$=notes] option[value=hint]");
    browser.click("form[data-api$=notes] option[value='M1.2']");
    browser.type_text("form[data-api$=notes] textarea", "Mind the tests.");
    browser.click("form[data-api$=notes] button");
    browser.wait_for_text("form[data-api$=notes] output", "asked for: note: Hint about M1.2");
    browser.open(&dashboard.url(&format!("{run}/sandbox")));
    browser.wait_for_text("table", "test_command");
    browser.click("[data-name=lint]");
    browser.wait_for_text("#answer", "asked for: run lint");
    held.let_go();
    held.live.wait().expect(0, &["done"]);
    browser.wait_for_text("#outputs", "<b>checked</b>");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_person_queues_a_run_with_a_form() {
    let browser = need!(Browser::start());
    let place = Place::new();
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    browser.open(&dashboard.url("/new"));
    browser.type_text("[name='settings:budget.max_iterations']", "7");
    browser.type_text("[name='settings:budget.max_cost_usd_estimate']", "1.5");
    browser.type_text("#task", "# nothing to do");
    browser.click("button.primary");
    eventually("the task is refused", || {
        browser.text("form output").contains("is not valid")
    });
    browser.type_text("#task", TASK);
    browser.click("button.primary");
    eventually("the run is queued", || browser.path().starts_with("/runs/"));
    browser.wait_for_text("#headline", "queued");
    browser.wait_for_text("#overview", "0 of 7");
    browser.wait_for_text("#overview", "$0.00 of $1.50");
    let complaints = browser.complaints();
    let others: Vec<&String> = complaints
        .iter()
        .filter(|one| !one.contains("/api/runs"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}
