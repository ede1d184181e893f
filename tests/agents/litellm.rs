//! Whole tasks through the real LiteLLM proxy.

use std::thread;

use serde_json::{Value, json};

use crate::bench::{Bench, KEY, Program, Within, one_session};
use crate::need;
use crate::support::litellm::{MASTER_KEY, Proxy, executable};
use crate::support::model_server::Teller;
use crate::support::ralph::{Ended, finish};

/// Two programs at once share one proxy, which takes its time to come up.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_through_litellm_by_every_program() {
    let executable = need!(executable());
    let teller = || Teller::of(one_session());
    let claude = need!(Bench::within(Within::Sealed, Program::Claude, teller()).await);
    let codex = need!(Bench::within(Within::Sealed, Program::Codex, teller()).await);
    let models = [
        served("for-claude", "anthropic", &claude),
        served("for-codex", "openai", &codex),
    ];
    let proxy = Proxy::start(&executable, &models).await;
    let (by_claude, by_codex) = thread::scope(|scope| {
        let by_codex = scope.spawn(|| run(&codex, &proxy, "for-codex"));
        (run(&claude, &proxy, "for-claude"), by_codex.join().unwrap())
    });
    for (bench, ended) in [(&claude, by_claude), (&codex, by_codex)] {
        assert_eq!(ended.code, Some(0), "{ended:?}\n{}", proxy.log());
        assert_eq!(bench.handed_back("b.txt"), "hello\n");
        assert!(bench.server.asked().len() >= 3);
    }
}

/// What the proxy serves under this name: the model of a bench.
fn served(name: &str, provider: &str, bench: &Bench) -> Value {
    let upstream = json!({
        "model": format!("{provider}/first-model"), "api_base": bench.server.base_url(), "api_key": KEY,
    });
    json!({"model_name": name, "litellm_params": upstream})
}

/// Runs the task with this model of the proxy's.
fn run(bench: &Bench, proxy: &Proxy, model: &str) -> Ended {
    bench.configure_at(&proxy.address, "");
    let model = format!("agent.model={model}");
    let settings = ["--set", "models.first.api_key_env=TEAM_KEY", "--set", &model];
    finish(
        bench
            .ralph(&[&["run"], &settings[..]].concat())
            .env("TEAM_KEY", MASTER_KEY),
    )
}
