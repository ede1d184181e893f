//! Attacks on a VM. They use `curl`, because VMs run other operating systems than the guest is built for.

use std::net::SocketAddr;

use futures_util::future::try_join_all;

use super::attack::{Attack, known_gap};
use super::scenario::shell;
use super::setup::{AttackSetup, name};
use super::{AttackClass, AttackResult, AttackVerdict, EscapeError, TIMEOUT, TRANSIT_TIME};
use crate::exec::Exit;
use crate::sandbox::{Sandbox, SandboxError};

/// Succeeds only if a server responds with success.
const CURL: &str = "curl -q -gsf --max-time 1 -o /dev/null";
const NO_PROXY: &str = "--noproxy '*'";
/// Exit codes from here on are the shell's, not `curl`'s.
const NO_CURL: i32 = 126;
/// How many attacks run in parallel; few enough that none delays the others.
const PARALLEL: usize = 8;

/// The arguments of a `curl` command that must fail, and must not reach the host.
type CurlAttack = Attack<String>;

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
    results.extend(known_gaps(gateway));
    Ok(results)
}

/// Properties that VMs do not have.
fn known_gaps(gateway: Option<SocketAddr>) -> [AttackResult; 5] {
    let kernel = "the agent may be root in its VM, whose kernel and programs are its own";
    let sockets = AttackResult::not_tried(
        "sockets are allowed by family and protocol",
        AttackClass::Sockets,
        kernel,
    );
    let evidence = AttackResult::not_tried(
        "programs that the agent changed do not make evidence pass",
        AttackClass::Evidence,
        kernel,
    );
    let privileges = AttackResult::not_tried(
        "privileged actions are impossible",
        AttackClass::Privileges,
        "the agent may be root in its VM; ralph does not test whether it can break out of the VM",
    );
    let network = match gateway {
        Some(_) => AttackResult::not_tried(
            "services at the gateway's own address are unreachable",
            AttackClass::Places,
            "Softnet does not filter by port: services that listen at all addresses of the host are reachable there",
        ),
        None => AttackResult::not_tried(
            "an allowed name does not reach a private network",
            AttackClass::Rebinding,
            "the program that creates the VM resolves names itself",
        ),
    };
    [privileges, sockets, evidence, network, known_gap()]
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
    let printed = shell(sandbox, "printf %s \"$http_proxy\"", TIMEOUT).await?;
    let proxy = printed.stdout.text();
    let own = proxy
        .split_once('@')
        .filter(|(credential, _)| credential.ends_with(setup.phantom.expose()));
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
    let line = format!("curl -q -gsf --max-time 5 http://{}/", setup.allowed_host());
    let exit = shell(sandbox, &line, TIMEOUT).await?;
    if exit.stdout.text() == setup.body() && setup.take_server_hit() {
        Ok(())
    } else {
        Err(EscapeError::Control(exit.status.to_string()))
    }
}

impl CurlAttack {
    async fn run(&self, sandbox: &dyn Sandbox) -> Result<Exit, SandboxError> {
        shell(sandbox, &format!("{CURL} {}", self.action), TIMEOUT).await
    }

    /// The result, from the exit code of `curl` and what reached the host.
    fn judge(&self, exit: &Exit, hits: &[String]) -> AttackResult {
        let code = exit.status.shell_code();
        let success = match code {
            0 => Some("a server responded".to_owned()),
            NO_CURL.. => Some(format!("cannot run curl: {}", exit.stderr.text().trim())),
            _ => None,
        };
        let seen = format!("curl exited with {code}");
        self.result(seen, success, hits, "it failed, and nothing reached the host")
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
    let attack = |(class, name, action)| Attack { class, name, action };
    all.into_iter().map(attack).collect()
}

/// Attacks with the arguments of `curl`.
type CurlTable = Vec<(AttackClass, &'static str, String)>;

fn names() -> CurlTable {
    use AttackClass::{Matching, Names, Proxy};
    let (allowed, denied) = (name("allowed"), name("denied"));
    let http = format!("http://{denied}/");
    let https = format!("https://{denied}/");
    let tunnel = format!("--proxytunnel {http}");
    let direct = format!("{NO_PROXY} {http}");
    let longer = format!("http://not{allowed}/");
    let prefix = format!("http://{allowed}.test/");
    let below = format!("http://below.{allowed}/");
    vec![
        (Names, "a denied name is not reached over HTTP", http),
        (Names, "a denied name is not reached over TLS", https),
        (Proxy, "a tunnel to a denied name is refused", tunnel),
        (Proxy, "a denied name is not reached past the proxy", direct),
        (Matching, "a rule does not match a longer label", longer),
        (Matching, "a rule does not match as a prefix", prefix),
        (Matching, "a rule does not match subdomains", below),
    ]
}

fn addresses(url: &str) -> CurlTable {
    use AttackClass::Addresses;
    let (direct, proxied) = (format!("{NO_PROXY} {url}"), url.to_owned());
    vec![
        (Addresses, "host ports are unreachable", direct),
        (Addresses, "host ports are unreachable through the proxy", proxied),
    ]
}

fn places() -> CurlTable {
    let attack = |name, address: &str| {
        [NO_PROXY, ""].map(|way| (AttackClass::Places, name, format!("{way} http://{address}/")))
    };
    let metadata = attack("the metadata service is unreachable", "169.254.169.254");
    let private = attack("a private network is unreachable", "10.0.0.1");
    metadata.into_iter().chain(private).collect()
}

/// Attacks that ralph's gateway must stop.
fn gateway_attacks(setup: &AttackSetup) -> CurlTable {
    use AttackClass::{Disagreement, Gateways, Rebinding};
    let (allowed, denied) = (setup.allowed_host(), name("denied"));
    let [metadata, private] = ["metadata", "private"].map(|label| format!("http://{}/", name(label)));
    let anonymous = format!("-x \"http://${{http_proxy##*@}}\" http://{allowed}/");
    let foreign =
        format!("-x \"http://ralph:ralph-phantom-of-another-run@${{http_proxy##*@}}\" http://{allowed}/");
    let another_host = format!("-H 'Host: {denied}' http://{allowed}/");
    let mut table = vec![
        (Gateways, "the proxy requires a phantom", anonymous),
        (Gateways, "the proxy refuses another run's phantom", foreign),
        (
            Disagreement,
            "a request line that names another host is refused",
            another_host,
        ),
        (
            Rebinding,
            "an allowed name does not reach the metadata service",
            metadata,
        ),
        (
            Rebinding,
            "an allowed name does not reach a private network",
            private,
        ),
    ];
    let own = setup.rebound_host().map(|host| format!("http://{host}/"));
    table.extend(own.map(|url| (Rebinding, "an allowed name does not reach the host", url)));
    table
}
