//! When the model does not answer, or the agent does not come on.

use std::sync::{Arc, OnceLock};

use rstest::rstest;

use crate::bench::{Bench, KEY, Program, Within, in_circles, whole_task};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::finish;

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_is_a_pause_until_its_reset_and_no_iteration(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let whole = whole_task();
    let announced: Arc<OnceLock<i64>> = Arc::default();
    let first = announced.clone();
    let teller = Teller::by(move |asked| match asked.session {
        0 => rate_limited(
            program,
            *first.get_or_init(|| jiff::Timestamp::now().as_second() + 6),
        ),
        _ => whole[asked.turn].clone(),
    });
    let bench = need!(Bench::within(within, program, teller).await);
    let ended = finish(
        bench
            .ralph(&["run"])
            .env_remove(program.key_variable())
            .env(subscription(program), KEY),
    );
    let reset = *announced.get().unwrap();
    let shown = jiff::Timestamp::from_second(reset)
        .unwrap()
        .strftime("%H:%M:%S UTC");
    ended.expect(
        0,
        &["waiting until", &shown.to_string(), "rate limited", "done: "],
    );
    assert!(jiff::Timestamp::now().as_second() >= reset, "it did not wait");
    assert_eq!(bench.place.status()["iterations"], 1, "{ended:?}");
}

fn subscription(program: Program) -> &'static str {
    match program {
        Program::Claude => "CLAUDE_CODE_OAUTH_TOKEN",
        _ => program.key_variable(),
    }
}

/// What the real ones say when a subscription is used up.
fn rate_limited(program: Program, reset: i64) -> Turn {
    match program {
        Program::Claude => Turn::refuse(429, "rate_limit_error")
            .with_header("anthropic-ratelimit-unified-status", "rejected")
            .with_header("anthropic-ratelimit-unified-representative-claim", "five_hour")
            .with_header("anthropic-ratelimit-unified-reset", &reset.to_string()),
        _ => Turn::refuse(429, "usage_limit_reached")
            .with_header("x-codex-primary-used-percent", "100")
            .with_header("x-codex-primary-window-minutes", "300")
            .with_header("x-codex-primary-reset-at", &reset.to_string()),
    }
}

/// It was good when the run began.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_credential_pauses_the_run_with_what_to_do(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let whole = whole_task();
    let teller = Teller::by(move |asked| match asked.session {
        0 => Turn::refuse(401, "authentication_error"),
        _ => whole[asked.turn].clone(),
    });
    let bench = need!(Bench::within(within, program, teller).await);
    let variable = program.key_variable();
    let paused = bench.run(&[]);
    paused.expect(
        3,
        &[
            "paused: ",
            "the credential was refused",
            &format!("put a valid one into `{variable}`"),
        ],
    );
    assert_eq!(bench.place.status()["iterations"], 0, "{paused:?}");
    finish(&mut bench.ralph(&["resume"])).expect(0, &["done: "]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_goes_in_circles_goes_on_with_another_model(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let whole = whole_task();
    let teller = Teller::by(move |asked| match asked.body["model"].as_str() {
        Some("first-model") => in_circles(asked.turn),
        _ => whole[asked.turn].clone(),
    });
    let bench = need!(Bench::within(within, program, teller).await);
    bench.configure(&format!(
        "fallback_profile = \"second\"\n[models.second]\nlitellm_model = \"x/second-model\"\nbase_url = \"{}\"\n\
         agent_model = \"second-model\"\n",
        bench.server.base_url()
    ));
    let ended = bench.run(&["--max-iterations", "12"]);
    ended.expect(
        0,
        &[
            "GUTTER",
            "ladder: rotate",
            "ladder: fallback: going on with profile second",
            "done: ",
        ],
    );
    let models = bench.models();
    let (last, before) = models.split_last().unwrap();
    assert_eq!(last, "second-model");
    assert!(before.iter().all(|model| model == "first-model"), "{models:?}");
}
