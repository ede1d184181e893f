//! Attacks on a machine, by a tool that every one has: machines are of other systems than the guest is built for.

use std::net::SocketAddr;

use futures_util::future::try_join_all;

use super::cases::{GAPS, Gap};
use super::stage::{Stage, name};
use super::{Class, EscapesError, ON_ITS_WAY, PATIENCE, Tried, Verdict, leftovers};
use crate::exec::{Command, Discard, Exit};
use crate::sandbox::{Provider, Sandbox, SandboxSpec};

/// An attempt that succeeds only when somebody answers it well. What is dropped is waited for in vain.
const TRY: &str = "curl -gsf --max-time 1 -o /dev/null";
const DIRECTLY: &str = "--noproxy '*'";
/// Where the proxy is that the machine was told of.
const TELL_PROXY: &str = "printf %s \"$http_proxy\"";
/// From here on it is the shell that speaks.
const NO_TOOL: i32 = 126;
/// How many attempts are made at once, so few that none waits for the others.
const AT_ONCE: usize = 8;

const OWN_ROOT: Gap = Gap {
    name: "what takes a privilege cannot be done",
    class: Class::Privileges,
    reason: "the agent may be root in its machine, which is its own; ralph does not try whether the machine can be left",
};
const OWN_ADDRESS: Gap = Gap {
    name: "what listens at the gateway's own address is not reached",
    class: Class::Places,
    reason: "Softnet tells no ports apart: services that listen at every address of this machine are within reach there",
};
const THEIR_NAMES: Gap = Gap {
    name: "an allowed name does not lead to a private network",
    class: Class::Rebinding,
    reason: "the program that makes the machine resolves names itself, out of ralph's sight",
};

/// An attempt that must fail, and be heard by nobody.
struct Attack {
    class: Class,
    name: &'static str,
    /// What `curl` is told.
    arguments: String,
}

/// Attacks a machine that is made for it, and closes it whatever comes of it.
pub(super) async fn attack(
    provider: &dyn Provider,
    spec: &SandboxSpec,
    stage: &Stage,
) -> Result<Vec<Tried>, EscapesError> {
    let sandbox = provider.create(spec).await?;
    let attacked = carry_out(sandbox.as_ref(), stage).await;
    sandbox.close().await?;
    let mut tried = attacked?;
    tried.push(leftovers(provider, spec).await?);
    Ok(tried)
}

async fn carry_out(sandbox: &dyn Sandbox, stage: &Stage) -> Result<Vec<Tried>, EscapesError> {
    let gateway = gateway(sandbox, stage).await?;
    control(sandbox, stage, gateway).await?;
    let mut tried = Vec::new();
    for together in attacks(stage, gateway).chunks(AT_ONCE) {
        tried.extend(attempt(sandbox, stage, together).await?);
    }
    // What held may have held because everything was closed meanwhile.
    control(sandbox, stage, gateway).await?;
    let gap = match gateway {
        Some(_) => OWN_ADDRESS,
        None => THEIR_NAMES,
    };
    tried.extend([OWN_ROOT, gap].iter().chain(GAPS).map(Gap::told));
    Ok(tried)
}

/// Makes some attempts at once. Where somebody heard of it, each is made again by itself, to tell which it was; of what is
/// not heard again it might have been any.
async fn attempt(
    sandbox: &dyn Sandbox,
    stage: &Stage,
    attacks: &[Attack],
) -> Result<Vec<Tried>, EscapesError> {
    let exits = try_join_all(attacks.iter().map(|attack| attack.make(sandbox))).await?;
    tokio::time::sleep(ON_ITS_WAY).await;
    let heard = stage.heard();
    if !heard.is_empty() {
        let mut alone = Vec::new();
        for attack in attacks {
            let exit = attack.make(sandbox).await?;
            tokio::time::sleep(ON_ITS_WAY).await;
            alone.push(attack.judge(&exit, &stage.heard()));
        }
        if alone.iter().any(|tried| tried.verdict == Verdict::Open) {
            return Ok(alone);
        }
    }
    let tried = attacks.iter().zip(&exits);
    Ok(tried.map(|(attack, exit)| attack.judge(exit, &heard)).collect())
}

/// The gateway of ours that programs inside are led to; `None` where the program that made the machine has its own proxy.
async fn gateway(sandbox: &dyn Sandbox, stage: &Stage) -> Result<Option<SocketAddr>, EscapesError> {
    let told = shell(sandbox, TELL_PROXY).await?.stdout.text();
    let told = told
        .split_once('@')
        .filter(|(credential, _)| credential.ends_with(stage.phantom().expose()));
    Ok(told.and_then(|(_, address)| address.parse().ok()))
}

/// Shows that the machine is kept as it should be, and that an allowed name is reached, which is heard outside.
async fn control(
    sandbox: &dyn Sandbox,
    stage: &Stage,
    gateway: Option<SocketAddr>,
) -> Result<(), EscapesError> {
    sandbox.verify().await?;
    if gateway.is_none() {
        return Ok(());
    }
    let exit = shell(
        sandbox,
        &format!("curl -gsf --max-time 5 http://{}/", stage.allowed_host()),
    )
    .await?;
    if exit.stdout.text() == stage.says() && stage.answered() {
        Ok(())
    } else {
        Err(EscapesError::Control(exit.status.to_string()))
    }
}

async fn shell(sandbox: &dyn Sandbox, line: &str) -> Result<Exit, EscapesError> {
    let command = Command::shell(line).timeout(PATIENCE);
    Ok(sandbox.exec(&command, &mut Discard).await?)
}

impl Attack {
    async fn make(&self, sandbox: &dyn Sandbox) -> Result<Exit, EscapesError> {
        shell(sandbox, &format!("{TRY} {}", self.arguments)).await
    }

    /// What comes of it, by how it ended inside and what was heard outside.
    fn judge(&self, exit: &Exit, heard: &[String]) -> Tried {
        let code = exit.status.shell_code();
        let (verdict, reason) = if !heard.is_empty() {
            (Verdict::Open, heard.join(", "))
        } else if code == 0 {
            (Verdict::Open, "somebody answered".to_owned())
        } else if code >= NO_TOOL {
            (
                Verdict::Open,
                format!("it could not be tried: {}", exit.stderr.text().trim()),
            )
        } else {
            (Verdict::Enforced, "it failed, and nobody heard of it".to_owned())
        };
        Tried {
            name: self.name.to_owned(),
            class: self.class,
            verdict,
            seen: format!("curl ended with {code}"),
            reason,
        }
    }
}

fn attacks(stage: &Stage, gateway: Option<SocketAddr>) -> Vec<Attack> {
    let canaries = stage.canaries();
    let beside = canaries
        .iter()
        .filter(|canary| gateway.is_none_or(|gateway| canary.address().ip() != gateway.ip()));
    let mut all = names();
    all.extend(beside.flat_map(|canary| addresses(&canary.url())));
    all.extend(places());
    if gateway.is_some() {
        all.extend(of_gateway(stage));
    }
    all
}

fn attack_on(class: Class, name: &'static str, arguments: String) -> Attack {
    Attack {
        class,
        name,
        arguments,
    }
}

fn names() -> Vec<Attack> {
    let (allowed, denied) = (name("allowed"), name("denied"));
    let at = |class, name, arguments| attack_on(class, name, arguments);
    vec![
        at(
            Class::Names,
            "a denied name is not reached over HTTP",
            format!("http://{denied}/"),
        ),
        at(
            Class::Names,
            "a denied name is not reached over TLS",
            format!("https://{denied}/"),
        ),
        at(
            Class::Proxy,
            "a tunnel to a denied name is refused",
            format!("--proxytunnel http://{denied}/"),
        ),
        at(
            Class::Proxy,
            "a denied name is not reached past the proxy",
            format!("{DIRECTLY} http://{denied}/"),
        ),
        at(
            Class::Matching,
            "a longer label is another name",
            format!("http://not{allowed}/"),
        ),
        at(
            Class::Matching,
            "an allowed name as a label is another name",
            format!("http://{allowed}.test/"),
        ),
        at(
            Class::Matching,
            "what is below an allowed name is another name",
            format!("http://below.{allowed}/"),
        ),
    ]
}

fn addresses(address: &str) -> [Attack; 2] {
    [
        attack_on(
            Class::Addresses,
            "a port of this machine is not reached",
            format!("{DIRECTLY} {address}"),
        ),
        attack_on(
            Class::Addresses,
            "a port of this machine is not reached by the proxy",
            address.to_owned(),
        ),
    ]
}

fn places() -> Vec<Attack> {
    let place = |name, address: &str| {
        [DIRECTLY, ""].map(|way| attack_on(Class::Places, name, format!("{way} http://{address}/")))
    };
    [
        place("the metadata service is not reached", "169.254.169.254"),
        place("a private network is not reached", "10.0.0.1"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What is for the gateway to hold.
fn of_gateway(stage: &Stage) -> Vec<Attack> {
    let (allowed, denied) = (stage.allowed_host(), name("denied"));
    let as_another = "-x \"http://ralph:ralph-phantom-of-another-run@${http_proxy##*@}\"";
    let rebound = |label: &str| format!("http://{}/", name(label));
    let mut all = vec![
        attack_on(
            Class::Proxy,
            "the proxy serves nobody without a phantom",
            format!("-x \"http://${{http_proxy##*@}}\" http://{allowed}/"),
        ),
        attack_on(
            Class::Proxy,
            "the proxy does not serve another run's phantom",
            format!("{as_another} http://{allowed}/"),
        ),
        attack_on(
            Class::Disagreement,
            "a request whose line names another host is refused",
            format!("-H 'Host: {denied}' http://{allowed}/"),
        ),
        attack_on(
            Class::Rebinding,
            "an allowed name does not lead to the metadata service",
            rebound("metadata"),
        ),
        attack_on(
            Class::Rebinding,
            "an allowed name does not lead to a private network",
            rebound("private"),
        ),
    ];
    all.extend(stage.own().map(|own| {
        let host = format!("http://{}:{}/", name("own"), own.port());
        attack_on(
            Class::Rebinding,
            "an allowed name does not lead to this machine",
            host,
        )
    }));
    all
}
