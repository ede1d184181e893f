//! What axe-core finds on the pages: nothing serious, in both colour schemes.

use serde_json::Value;

use crate::need;
use crate::support::browser::{Browser, Dashboard};
use crate::support::ralph::{Place, doing, run, script, user_file, whole_task};

/// The script of axe-core.
fn axe() -> Result<String, String> {
    let missing = "axe-core is missing: tests/support/install-axe installs it";
    let path = std::env::var("RALPH_TEST_AXE").map_err(|_| missing.to_owned())?;
    std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
}

/// Every page that needs a login.
const PAGES: [&str; 19] = [
    "/",
    "/new",
    "/credentials",
    "/workers",
    "/images",
    "/settings",
    "/nothing",
    "/runs/{run}",
    "/runs/{run}/log",
    "/runs/{run}/task",
    "/runs/{run}/notes",
    "/runs/{run}/iterations",
    "/runs/{run}/iterations/1",
    "/runs/{run}/compare?first=1&second=2",
    "/runs/{run}/diff",
    "/runs/{run}/pull-request",
    "/runs/{run}/diagnosis",
    "/runs/{run}/network",
    "/runs/{run}/sandbox",
];

/// What is seriously wrong with the page that the browser shows, in one line each.
fn findings(browser: &Browser, axe: &str) -> Vec<String> {
    // A script of the driver is not subject to the policy of the page.
    browser.eval(axe);
    let found = browser.eval_later(
        "const done = arguments[arguments.length - 1];
         axe.run(document, {resultTypes: ['violations']}).then((result) => done(result.violations), (error) => done(String(error)));",
    );
    let violations = found
        .as_array()
        .unwrap_or_else(|| panic!("axe-core ended with {found}"));
    let is_serious = |one: &&Value| matches!(one["impact"].as_str(), Some("serious" | "critical"));
    let line = |one: &Value| {
        let nodes = one["nodes"].as_array().into_iter().flatten();
        let nodes: Vec<String> = nodes
            .map(|node| format!("{}: {}", node["html"], node["failureSummary"]))
            .collect();
        format!("{}: {}", one["id"], nodes.join("; "))
    };
    violations.iter().filter(is_serious).map(line).collect()
}

#[test]
fn axe_finds_nothing_serious_on_any_page_in_both_colour_schemes() {
    let axe = need!(axe());
    let browser = need!(Browser::start());
    let place = Place::new();
    user_file(&place, "[dashboard]\nmode = \"DEBUG\"\n");
    let colours = r"\033[30ma \033[31mb \033[32mc \033[33md \033[34me \033[35mf \033[36mg \033[37mh";
    let prints = run(&format!(r"printf '{colours} \033[0;2mdim\033[0m\n'"));
    place
        .run_script(&script([doing([prints]), whole_task()]))
        .expect(0, &["done"]);
    let id = place.run_id();
    let dashboard = Dashboard::start(&place);
    let mut wrong = Vec::new();
    browser.open(&dashboard.url("/login"));
    wrong.extend(
        findings(&browser, &axe)
            .into_iter()
            .map(|one| format!("/login: {one}")),
    );
    dashboard.log_in(&browser);
    for scheme in ["light", "dark"] {
        browser.colour_scheme(scheme);
        for page in PAGES {
            let page = page.replace("{run}", &id);
            browser.open(&dashboard.url(&page));
            wrong.extend(
                findings(&browser, &axe)
                    .into_iter()
                    .map(|one| format!("{page}, {scheme}: {one}")),
            );
        }
        let html = browser.eval(&format!(
            "return fetch('/api/runs/{id}/export').then((answer) => answer.text())"
        ));
        let file = place.path().join("export.html");
        std::fs::write(&file, html.as_str().unwrap()).unwrap();
        browser.open(&format!("file://{}", file.display()));
        wrong.extend(
            findings(&browser, &axe)
                .into_iter()
                .map(|one| format!("export, {scheme}: {one}")),
        );
        browser.open(&dashboard.url("/"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // It does find what is wrong.
    browser.eval("document.querySelector('main').append(document.createElement('button'))");
    let found = findings(&browser, &axe);
    assert!(found.iter().any(|one| one.contains("button-name")), "{found:?}");
}
