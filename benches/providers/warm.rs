//! A command over the warm session of a VM, and by one call of the program that creates it, in turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph::exec::{Command, Discard, Host};
use ralph::id::RunId;
use ralph::sandbox::docker_sandbox;
use ralph::sandbox::tart::{self, TartOptions};
use ralph::sandbox::{Provider, SandboxSpec};
use support::vms::Site;
use support::{base, engine};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};

/// How often the program is called, and the session used between two calls.
const ROUNDS: usize = 30;
const PER_ROUND: usize = 10;

pub(crate) async fn measure() -> Fallible<Vec<Figure>> {
    let image = base::image(&engine::engine().await?).await?;
    let site = Site::with(&["tart"], &image);
    // The guest program of ralph runs only in VMs of Linux.
    site.put("os", "linux");
    let provider = Arc::new(tart::provider(TartOptions {
        vm: site.options(),
        dependencies: String::new(),
        project: "/project".into(),
        boot_timeout: TartOptions::BOOT_TIMEOUT,
    }));
    let tart = Scene {
        figure: "tart-warm",
        peer: "tart exec",
        call: &["tart", "exec"],
        host: site.host(),
        provider,
    };
    let tart = tart.measure(&image).await?;
    let site = Site::with(&["sbx"], &image);
    let provider = Arc::new(docker_sandbox::provider(site.options()));
    let sbx = Scene {
        figure: "docker-sandbox-warm",
        peer: "sbx exec",
        call: &["sbx", "exec"],
        host: site.host(),
        provider,
    };
    Ok(vec![tart, sbx.measure(&image).await?])
}

/// A provider, and the program that it calls.
struct Scene {
    figure: &'static str,
    peer: &'static str,
    /// What runs a command in a VM, whose name follows.
    call: &'static [&'static str],
    host: Host,
    provider: Arc<dyn Provider>,
}

impl Scene {
    async fn measure(self, image: &str) -> Fallible<Figure> {
        let spec = SandboxSpec {
            image: Some(image.to_owned()),
            ..SandboxSpec::unrestricted(RunId::random())
        };
        let sandbox = self.provider.create(&spec).await?;
        let nothing = Command::new("true");
        let call = Command::new(self.call[0]).args(self.call[1..].iter().copied());
        let call = call.args([sandbox.id(), "true"]);
        // The first ones find cold caches, and open the session.
        sandbox.exec(&nothing, &mut Discard).await?;
        self.called(&call).await?;
        let (mut warm, mut called) = (vec![], vec![]);
        for _ in 0..quick::rounds(ROUNDS) {
            for _ in 0..PER_ROUND {
                let started = Instant::now();
                let exit = sandbox.exec(&nothing, &mut Discard).await?;
                warm.push(started.elapsed());
                let notices = sandbox.notices();
                if !exit.success() || !notices.is_empty() {
                    return Err(format!(
                        "there is no warm session to measure: {}, {notices:?}",
                        exit.status
                    )
                    .into());
                }
            }
            called.push(self.called(&call).await?);
        }
        sandbox.close().await?;
        let [warm, called] = [warm, called].map(Samples::milliseconds);
        println!("{}, ms: warm {warm}; by one call {called}", self.figure);
        Ok(Figure {
            name: self.figure,
            unit: "ms",
            at: MEDIAN,
            ours: warm,
            peer: Some(PeerSamples::new(self.peer, &called)),
            target: Target::Ratio(0.1),
        })
    }

    async fn called(&self, call: &Command) -> Fallible<Duration> {
        let started = Instant::now();
        let exit = self.host.run(call, &mut Discard).await?;
        let spent = started.elapsed();
        if exit.success() {
            return Ok(spent);
        }
        Err(format!("`{call}` failed: {}", exit.stderr.text()).into())
    }
}
