//! Whole tasks through the real LiteLLM proxy.

use rstest::rstest;
use serde_json::json;

use crate::bench::{Bench, KEY, Program, Within, whole_task};
use crate::need;
use crate::support::litellm::{MASTER_KEY, Proxy, executable};
use crate::support::model_server::Teller;
use crate::support::ralph::finish;

#[rstest]
#[case::claude(Program::Claude, "anthropic")]
#[case::codex(Program::Codex, "openai")]
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_through_litellm(#[case] program: Program, #[case] provider: &str) {
    let executable = need!(executable());
    let teller = Teller::of(vec![whole_task()]);
    let bench = need!(Bench::within(Within::Sealed, program, teller).await);
    let upstream = json!({
        "model": format!("{provider}/first-model"), "api_base": bench.server.base_url(), "api_key": KEY,
    });
    let models = [json!({"model_name": "first-model", "litellm_params": upstream})];
    let proxy = Proxy::start(&executable, &models).await;
    bench.configure_at(&proxy.address, "");
    let ended = finish(
        bench
            .ralph(&["run", "--set", "models.first.api_key_env=TEAM_KEY"])
            .env("TEAM_KEY", MASTER_KEY),
    );
    assert_eq!(ended.code, Some(0), "{ended:?}\n{}", proxy.log());
    assert_eq!(bench.handed_back("b.txt"), "hello\n");
    assert!(bench.server.asked().len() >= 3);
}
