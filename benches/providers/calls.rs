//! What a call to Daytona costs beyond the call itself: the same by the provider's client and by a bare one, in turns.

use std::time::{Duration, Instant};

use ralph::sandbox::Provider;
use ralph::sandbox::daytona::DaytonaProvider;
use serde_json::Value;
use support::daytona::KEY;

use super::Fallible;
use super::figure::{Figure, MEDIAN, Samples, Target, quick};
use super::serve::Served;

const ROUNDS: usize = 2000;
const PORT: u16 = 8080;

pub(crate) async fn measure(daytona: &Served) -> Fallible<Vec<Figure>> {
    let provider = DaytonaProvider::new(daytona.options());
    let sandbox = provider.create(&Served::spec()).await?;
    let url = daytona.url(&format!("sandbox/{}/ports/{PORT}/preview-url", sandbox.id()));
    let client = reqwest::Client::builder().http1_only().no_proxy().build()?;
    let (mut ours, mut bare) = (vec![], vec![]);
    for _ in 0..quick::rounds(ROUNDS) {
        let started = Instant::now();
        sandbox.preview(PORT).await?;
        ours.push(started.elapsed());
        bare.push(by_bare_client(&client, &url).await?);
    }
    sandbox.close().await?;
    let [ours, bare] = [ours, bare].map(|spent| {
        let microseconds = spent.iter().map(|one| one.as_secs_f64() * 1e6);
        microseconds.collect::<Samples>()
    });
    println!("a call, us: ours {ours}; a bare client {bare}");
    Ok(vec![Figure {
        name: "daytona-own-per-call",
        unit: "us",
        at: MEDIAN,
        ours: ours.added_to(&bare),
        peer: None,
        target: Target::Most(1000.0),
    }])
}

async fn by_bare_client(client: &reqwest::Client, url: &str) -> Fallible<Duration> {
    let started = Instant::now();
    let answer = client.get(url).bearer_auth(KEY).send().await?;
    let _: Value = answer.error_for_status()?.json().await?;
    Ok(started.elapsed())
}
