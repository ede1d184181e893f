//! Text of models, repositories and files cannot do anything on a page.

use serde_json::json;

use crate::need;
use crate::support::browser::{Browser, Dashboard};
use crate::support::ralph::{Place, doing, ending, finish, run, script, write};

/// Strings that run a script where text is not escaped, each in another way.
const HOSTILE: [&str; 40] = [
    "<script>top.hit=1</script>",
    "<img src=x onerror=top.hit=1>",
    "<svg onload=top.hit=1>",
    "<svg><script>top.hit=1</script></svg>",
    "\"><script>top.hit=1</script>",
    "'><script>top.hit=1</script>",
    "</textarea><script>top.hit=1</script>",
    "</title><script>top.hit=1</script>",
    "</pre><script>top.hit=1</script>",
    "</code><img src=x onerror=top.hit=1>",
    "--><script>top.hit=1</script>",
    "]]><script>top.hit=1</script>",
    "\" onmouseover=\"top.hit=1",
    "' onfocus='top.hit=1' autofocus='",
    "<a href=\"javascript:top.hit=1\">x</a>",
    "javascript:top.hit=1",
    "<iframe src=\"javascript:parent.hit=1\">",
    "<iframe srcdoc=\"<script>parent.hit=1</script>\">",
    "<body onload=top.hit=1>",
    "<input autofocus onfocus=top.hit=1>",
    "<details open ontoggle=top.hit=1>",
    "<video><source onerror=top.hit=1></video>",
    "<audio src=x onerror=top.hit=1>",
    "<object data=\"javascript:top.hit=1\">",
    "<embed src=\"javascript:top.hit=1\">",
    "<form action=\"javascript:top.hit=1\"><button autofocus>x</button></form>",
    "<math><mi xlink:href=\"data:x,<script>top.hit=1</script>\">",
    "<style>*{background:url(javascript:top.hit=1)}</style>",
    "<link rel=stylesheet href=data:text/css,*{color:red}>",
    "<meta http-equiv=refresh content=\"0;url=javascript:top.hit=1\">",
    "<base href=\"https://attacker.test/\">",
    "{{ 7 * 7 }}",
    "{% raw %}<script>top.hit=1</script>{% endraw %}",
    "${top.hit=1}",
    "<template><script>top.hit=1</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=top.hit=1>\">",
    "&lt;script&gt;top.hit=1&lt;/script&gt;",
    "\u{202e}<script>top.hit=1</script>",
    "<scr\tipt>top.hit=1</scr\tipt>",
    "<img src=`x` onerror=top.hit=1>",
];

/// A run with hostile text wherever a model, a repository or a file can put some.
fn hostile_place() -> Place {
    let place = Place::new();
    let all = HOSTILE.join("\n");
    place.write("hostile.txt", &all);
    let title = "# <img src=x onerror=top.hit=1></title><script>top.hit=1</script>";
    let task = std::fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
    let lines: Vec<&str> = task
        .lines()
        .map(|line| if line.starts_with("# ") { title } else { line })
        .collect();
    let text = format!("{}\n\n{}\n", lines.join("\n"), HOSTILE[..30].join("\n\n"));
    place.write("ralph_task.md", &text);
    place.commit("Add what is hostile");
    let name = "<img src=x onerror=top.hit=1>.txt";
    let mut answer = ending([
        write(name, &all),
        run("cat hostile.txt; echo '<script>top.hit=1</script>' >&2; exit 7"),
    ]);
    answer["summary"] = json!(all);
    let script = script([doing([run("cat hostile.txt")]), answer]);
    // The script has no third answer, so the run ends there.
    let ended = finish(&mut place.scripted(&script, &[]));
    assert_eq!(place.runs().len(), 1, "{ended:?}");
    place
}

#[test]
fn no_hostile_text_runs_on_any_page() {
    let browser = need!(Browser::start());
    let place = hostile_place();
    let dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    let run = place.run_id();
    let paths = [
        "",
        "/log",
        "/task",
        "/notes",
        "/iterations",
        "/iterations/1",
        "/iterations/2",
        "/compare?first=1&second=2",
        "/diff",
        "/diff?since=1",
        "/pull-request",
        "/sandbox",
        "/diagnosis",
        "/network",
        "/log?search=%22%3E%3Cscript%3Etop.hit%3D1%3C/script%3E&kinds=%22%3E%3Cimg",
    ];
    let mut pages: Vec<String> = paths.iter().map(|path| format!("/runs/{run}{path}")).collect();
    pages.push("/".to_owned());
    pages.push("/?text=%3Cscript%3Etop.hit%3D1%3C/script%3E".to_owned());
    for page in pages {
        browser.open(&dashboard.url(&page));
        let shown = browser.text("body");
        assert!(shown.contains("ralph"), "{page}: {shown}");
        assert_eq!(browser.eval("return top.hit ?? 0"), 0, "{page}");
        let made = "return document.querySelectorAll('img[onerror], script:not([src]), iframe, object, embed, base, [onload], \
                    [onfocus], [ontoggle], [onmouseover]').length";
        assert_eq!(browser.eval(made), 0, "{page}");
        assert_eq!(browser.complaints(), [""; 0], "{page}");
    }
    browser.open(&dashboard.url(&format!("/runs/{run}/log")));
    browser.wait_for_text("#log", "<svg onload=top.hit=1>");
}
