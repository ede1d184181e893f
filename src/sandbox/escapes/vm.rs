//! Attacks on a VM. They use `curl`, because VMs run other operating systems than the guest is built for.

use std::net::SocketAddr;

use futures_util::future::try_join_all;

use super::attack::{KNOWN_GAPS, KnownGap};
use super::setup::{AttackSetup, name};
use super::{AttackClass, AttackResult, AttackVerdict, EscapeError, TIMEOUT, TRANSIT_TIME};
use crate::exec::{Command, Discard, Exit};
use crate::sandbox::Sandbox;

/// Succeeds only if a server responds with success.
const CURL: &str = "curl -gsf --max-time 1 -o /dev/null";
const NO_PROXY: &str = "--noproxy '*'";
/// Exit codes from here on are the shell's, not `curl`'s.
const NO_CURL: i32 = 126;
/// How many attacks run in parallel; few enough that none delays the others.
const PARALLEL: usize = 8;

const ROOT_IN_VM: KnownGap = KnownGap {
    name: "privileged actions are impossible",
    class: AttackClass::Privileges,
    reason: "the agent may be root in its VM; ralph does not test whether it can break out of the VM",
};
const GATEWAY_ADDRESS: KnownGap = KnownGap {
    name: "services at the gateway's own address are unreachable",
    class: AttackClass::Places,
    reason: "Softnet does not filter by port: services that listen at all addresses of the host are reachable there",
};
const FOREIGN_RESOLVER: KnownGap = KnownGap {
    name: "an allowed name does not reach a private network",
    class: AttackClass::Rebinding,
    reason: "the program that creates the VM resolves names itself",
};

/// A `curl` command that must fail, and must not reach the host.
struct CurlAttack {
    class: AttackClass,
    name: &'static str,
    arguments: String,
}

/// Runs all attacks in a VM.
pub(super) async fn attack(
    sandbox: &dyn Sandbox,
    setup: &AttackSetup,
) -> Result<Vec<AttackResult>, EscapeError> {
    let gateway = gateway(sandbox, setup).await?;
    check_control(sandbox, setup, gateway).await?;
    let mut results = Vec::new();
    for batch in attacks(setup, gateway).chunks(PARALLEL) {
        results.extend(run_batch(sandbox, setup, batch).await?);
    }
    // The attacks may have failed because the network stopped working.
    check_control(sandbox, setup, gateway).await?;
    let gap = match gateway {
        Some(_) => GATEWAY_ADDRESS,
        None => FOREIGN_RESOLVER,
    };
    let gaps = [ROOT_IN_VM, gap];
    results.extend(gaps.iter().chain(KNOWN_GAPS).map(KnownGap::to_result));
    Ok(results)
}

/// Runs some attacks in parallel. If anything reached the host, each is run again alone to find out which one it was. If
/// none of those reaches the host again, all of the batch count as successful.
async fn run_batch(
    sandbox: &dyn Sandbox,
    setup: &AttackSetup,
    attacks: &[CurlAttack],
) -> Result<Vec<AttackResult>, EscapeError> {
    let exits = try_join_all(attacks.iter().map(|attack| attack.run(sandbox))).await?;
    tokio::time::sleep(TRANSIT_TIME).await;
    let hits = setup.take_hits();
    if !hits.is_empty() {
        let mut alone = Vec::new();
        for attack in attacks {
            let exit = attack.run(sandbox).await?;
            tokio::time::sleep(TRANSIT_TIME).await;
            alone.push(attack.judge(&exit, &setup.take_hits()));
        }
        if alone.iter().any(|result| result.verdict == AttackVerdict::Open) {
            return Ok(alone);
        }
    }
    let runs = attacks.iter().zip(&exits);
    Ok(runs.map(|(attack, exit)| attack.judge(exit, &hits)).collect())
}

/// The address of ralph's gateway; `None` if the program that created the VM has a proxy of its own.
async fn gateway(sandbox: &dyn Sandbox, setup: &AttackSetup) -> Result<Option<SocketAddr>, EscapeError> {
    let proxy = shell(sandbox, "printf %s \"$http_proxy\"").await?.stdout.text();
    let own = proxy
        .split_once('@')
        .filter(|(credential, _)| credential.ends_with(setup.phantom().expose()));
    Ok(own.and_then(|(_, address)| address.parse().ok()))
}

/// The positive control: the VM passes its own probes, and reaches an allowed name through ralph's gateway.
async fn check_control(
    sandbox: &dyn Sandbox,
    setup: &AttackSetup,
    gateway: Option<SocketAddr>,
) -> Result<(), EscapeError> {
    sandbox.verify().await?;
    if gateway.is_none() {
        return Ok(());
    }
    let line = format!("curl -gsf --max-time 5 http://{}/", setup.allowed_host());
    let exit = shell(sandbox, &line).await?;
    if exit.stdout.text() == setup.body() && setup.take_server_hit() {
        Ok(())
    } else {
        Err(EscapeError::Control(exit.status.to_string()))
    }
}

async fn shell(sandbox: &dyn Sandbox, line: &str) -> Result<Exit, EscapeError> {
    let command = Command::shell(line).timeout(TIMEOUT);
    Ok(sandbox.exec(&command, &mut Discard).await?)
}

impl CurlAttack {
    fn new(class: AttackClass, name: &'static str, arguments: String) -> Self {
        Self {
            class,
            name,
            arguments,
        }
    }

    async fn run(&self, sandbox: &dyn Sandbox) -> Result<Exit, EscapeError> {
        shell(sandbox, &format!("{CURL} {}", self.arguments)).await
    }

    /// The result, from the exit code of `curl` and what reached the host.
    fn judge(&self, exit: &Exit, hits: &[String]) -> AttackResult {
        let code = exit.status.shell_code();
        let (verdict, reason) = if !hits.is_empty() {
            (AttackVerdict::Open, hits.join(", "))
        } else if code == 0 {
            (AttackVerdict::Open, "a server responded".to_owned())
        } else if code >= NO_CURL {
            let reason = format!("cannot run curl: {}", exit.stderr.text().trim());
            (AttackVerdict::Open, reason)
        } else {
            let reason = "it failed, and nothing reached the host";
            (AttackVerdict::Enforced, reason.to_owned())
        };
        AttackResult {
            name: self.name.to_owned(),
            class: self.class,
            verdict,
            seen: format!("curl exited with {code}"),
            reason,
        }
    }
}

fn attacks(setup: &AttackSetup, gateway: Option<SocketAddr>) -> Vec<CurlAttack> {
    let canaries = setup.canaries();
    let elsewhere = canaries
        .iter()
        .filter(|canary| gateway.is_none_or(|gateway| canary.address().ip() != gateway.ip()));
    let mut all = names();
    all.extend(elsewhere.flat_map(|canary| addresses(&canary.url())));
    all.extend(places());
    if gateway.is_some() {
        all.extend(gateway_attacks(setup));
    }
    all
}

fn names() -> Vec<CurlAttack> {
    use AttackClass::{Matching, Names, Proxy};
    let attack = CurlAttack::new;
    let (allowed, denied) = (name("allowed"), name("denied"));
    let http = format!("http://{denied}/");
    vec![
        attack(Names, "a denied name is not reached over HTTP", http.clone()),
        attack(
            Names,
            "a denied name is not reached over TLS",
            format!("https://{denied}/"),
        ),
        attack(
            Proxy,
            "a tunnel to a denied name is refused",
            format!("--proxytunnel {http}"),
        ),
        attack(
            Proxy,
            "a denied name is not reached past the proxy",
            format!("{NO_PROXY} {http}"),
        ),
        attack(
            Matching,
            "a rule does not match a longer label",
            format!("http://not{allowed}/"),
        ),
        attack(
            Matching,
            "a rule does not match as a prefix",
            format!("http://{allowed}.test/"),
        ),
        attack(
            Matching,
            "a rule does not match subdomains",
            format!("http://below.{allowed}/"),
        ),
    ]
}

fn addresses(url: &str) -> [CurlAttack; 2] {
    let attack = |name, arguments| CurlAttack::new(AttackClass::Addresses, name, arguments);
    [
        attack("host ports are unreachable", format!("{NO_PROXY} {url}")),
        attack("host ports are unreachable through the proxy", url.to_owned()),
    ]
}

fn places() -> Vec<CurlAttack> {
    let attack = |name, address: &str| {
        [NO_PROXY, ""]
            .map(|way| CurlAttack::new(AttackClass::Places, name, format!("{way} http://{address}/")))
    };
    let mut all = Vec::from(attack("the metadata service is unreachable", "169.254.169.254"));
    all.extend(attack("a private network is unreachable", "10.0.0.1"));
    all
}

/// Attacks that ralph's gateway must stop.
fn gateway_attacks(setup: &AttackSetup) -> Vec<CurlAttack> {
    use AttackClass::{Disagreement, Proxy, Rebinding};
    let attack = CurlAttack::new;
    let (allowed, denied) = (setup.allowed_host(), name("denied"));
    let anonymous = "-x \"http://${http_proxy##*@}\"";
    let foreign = "-x \"http://ralph:ralph-phantom-of-another-run@${http_proxy##*@}\"";
    let mut all = vec![
        attack(
            Proxy,
            "the proxy requires a phantom",
            format!("{anonymous} http://{allowed}/"),
        ),
        attack(
            Proxy,
            "the proxy refuses another run's phantom",
            format!("{foreign} http://{allowed}/"),
        ),
        attack(
            Disagreement,
            "a request line that names another host is refused",
            format!("-H 'Host: {denied}' http://{allowed}/"),
        ),
        attack(
            Rebinding,
            "an allowed name does not reach the metadata service",
            format!("http://{}/", name("metadata")),
        ),
        attack(
            Rebinding,
            "an allowed name does not reach a private network",
            format!("http://{}/", name("private")),
        ),
    ];
    all.extend(setup.rebound_host().map(|host| {
        let url = format!("http://{host}/");
        attack(Rebinding, "an allowed name does not reach the host", url)
    }));
    all
}
