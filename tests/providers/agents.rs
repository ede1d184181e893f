//! A real agent program in VMs: it reaches its model through the broker, and has only a phantom.

use std::path::PathBuf;
use std::process::Command;

use rstest::rstest;
use serde_json::Value;

use crate::daytona_runs::no_file_holds;
use crate::need;
use crate::site::{Ground, Program};
use crate::support::model_server::{Api, ModelServer, Teller, Turn};
use crate::support::ralph::{Place, finish};

/// The key of the model's service, which must not be in any VM.
const KEY: &str = "sk-canary-0123456789abcdef";

/// Searches a text, given in two halves, in all environments, command lines and files of a VM except those of its system.
/// Its own command line does not contain the whole text.
const LOOK: &str = "\
text=$1$2
case $(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n') in
*\"$text\"*) exit 0 ;;
esac
grep -rsqF --exclude-dir=usr --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev -- \"$text\" /
";

/// A VM with `claude`, a task, and the server of its model.
struct Scene {
    ground: Ground,
    place: Place,
    server: ModelServer,
}

impl Scene {
    async fn new(program: Program, turns: Vec<Turn>) -> Result<Self, String> {
        let claude = claude()?;
        let (ground, _) = Ground::allowing(program, &[]).await?;
        ground.site.provide(&claude);
        let (place, teller) = (Place::new(), Teller::of(vec![turns]));
        let server = ModelServer::start(Api::Messages, KEY, teller).await;
        place.write("look.sh", LOOK);
        place.commit("Say how to look for something");
        place.write(
            "ralph.toml",
            &format!(
                "default_profile = \"first\"\n[agent]\nname = \"claude\"\nmodel = \"first-model\"\n[models.first]\n\
                 litellm_model = \"x/first-model\"\nbase_url = \"{}\"\n{}",
                server.base_url(),
                ground.settings()
            ),
        );
        Ok(Self {
            ground,
            place,
            server,
        })
    }

    fn ralph(&self, args: &[&str]) -> Command {
        let mut command = self.ground.configured(&self.place, args);
        command.env("ANTHROPIC_API_KEY", KEY);
        command
    }

    /// The entries of the meter, in order.
    fn booked(&self) -> Vec<String> {
        let book = std::fs::read_to_string(self.place.run_dir().join("spending.jsonl")).unwrap();
        let entry = |line: &str| serde_json::from_str::<Value>(line).unwrap()["entry"].clone();
        book.lines()
            .map(|line| entry(line).as_str().unwrap().to_owned())
            .collect()
    }
}

fn claude() -> Result<PathBuf, String> {
    let folder = std::env::var_os("RALPH_TEST_AGENTS").map(PathBuf::from);
    let program = folder.map(|folder| folder.join("claude"));
    program
        .filter(|program| program.exists())
        .ok_or_else(|| "`claude` is not installed (tests/support/install-agents)".to_owned())
}

/// Reports whether a text is anywhere in the VM.
fn look(what: &str, (head, tail): (&str, &str)) -> String {
    format!("if sh look.sh {head} {tail}; then echo '{what}: yes'; else echo '{what}: no'; fi >> found.txt")
}

fn whole_task() -> Vec<Turn> {
    let boxes = "sed -i 's/- \\[ \\] M1/- [x] M1/' ralph_task.md";
    vec![
        Turn::run(look("phantom", ("ralph-", "phantom-"))),
        Turn::run(look("key", KEY.split_at(6))),
        Turn::run(format!(
            "echo hello > a.txt && echo hello > b.txt && git add a.txt b.txt found.txt && \
             git commit --quiet --message 'Say hello' && {boxes}"
        )),
        Turn::say("Both say hello."),
    ]
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_in_a_vm_that_never_has_the_key(
    #[values(Program::Tart, Program::Sbx)] program: Program,
) {
    let scene = need!(Scene::new(program, whole_task()).await);
    let ended = finish(&mut scene.ralph(&["run", "-vv"]));
    ended.expect(0, &["[x] M1.1", "[x] M1.2", "done: "]);
    for untrue in ["gets the real", "a budget cannot end it in the middle"] {
        assert!(!ended.stderr.contains(untrue), "{ended:?}");
    }
    let status = scene.place.status();
    let found = format!("{}:found.txt", status["branch"].as_str().unwrap());
    assert_eq!(scene.place.git(&["show", &found]), "phantom: yes\nkey: no\n");
    assert!(!format!("{ended:?}").contains(KEY), "{ended:?}");
    no_file_holds(scene.place.path(), KEY);

    // Every call arrived with the key, and was metered.
    let asked = scene.server.asked();
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|asked| asked.header("x-api-key") == KEY));
    assert_eq!(status["tokens"], Api::Messages.tokens() * 4);
    let mut booked = vec!["began"];
    booked.extend(["reserved", "spent"].repeat(4));
    assert_eq!(scene.booked(), booked);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_could_exceed_the_budget_is_not_sent(
    #[values(Program::Tart, Program::Sbx)] program: Program,
) {
    let scene = need!(Scene::new(program, whole_task()).await);
    let ended = finish(&mut scene.ralph(&["run", "--set", "budget.max_tokens_total=3000"]));
    ended.expect(1, &["failed: budget exceeded", "of 3000"]);
    assert_eq!(scene.server.asked().len(), 0);
}
