//! What restricts the network of a VM, and the probes from inside that show it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::super::canary::Canaries;
use super::super::docker::SealError;
use super::exec::VmExec;
use super::gateway::VmGateway;
use crate::exec::{Command, Discard};
use crate::network::probe::{Beacon, Canary, ProbeFailure};

/// Limit for all probes together; each has its own, shorter timeout.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for probes that must succeed, and (shorter) for probes that must fail, in seconds.
const SUCCESS_SECONDS: u32 = 15;
const FAILURE_SECONDS: u32 = 1;
/// The exit code of `curl -f` for an HTTP error, and the status of a refusal.
const HTTP_ERROR: i32 = 22;
const FORBIDDEN: &str = "403";
/// The exit code of `curl` for a connection that was refused.
const REFUSED: i32 = 7;
/// The exit codes of `curl` for a request that was sent, or could not be sent, and got no success: no such name, no
/// connection, an HTTP error, a timeout, and errors of the connection. Other codes mean that nothing was tried.
const NO_SUCCESS: [i32; 9] = [5, 6, REFUSED, HTTP_ERROR, 28, 52, 55, 56, 97];
/// Exit codes from here on are the shell's, not `curl`'s.
const NO_CURL: i32 = 126;
/// How many probes run in parallel. In a VM with more at once, a probe could end before it has sent anything.
const PARALLEL: usize = 32;

/// What restricts the network of a VM.
pub(in crate::sandbox) enum VmNetwork {
    /// Nothing: the policy allows everything.
    Open,
    /// Unknown: another process owns the VM, and this one is only attached to it.
    Attached,
    /// The VM reaches nothing.
    Blocked,
    /// The program that created the VM filters by name, and responds in place of denied names.
    Filtered,
    /// The VM reaches only a gateway on the host.
    Gateway(VmGateway),
}

impl VmNetwork {
    /// The proxy variables for programs in the VM.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        match self {
            Self::Gateway(gateway) => gateway.variables(),
            Self::Open | Self::Attached | Self::Blocked | Self::Filtered => BTreeMap::new(),
        }
    }

    /// Runs the probes in the VM. The error is the first probe that failed.
    pub(super) async fn verify(&self, exec: &VmExec) -> Result<(), SealError> {
        if matches!(self, Self::Open | Self::Attached) {
            return Ok(());
        }
        let untried = |reason: String| SealError::NotProbed(reason);
        let canaries = Canaries::open(self.gateway_ip()).await?;
        let checks = self.checks(&canaries.all())?;
        let command = Command::shell(script(&checks)).timeout(TIMEOUT);
        let exit = exec.run(&command, &mut Discard).await;
        let exit = exit.map_err(|error| untried(error.to_string()))?;
        let printed = exit.stdout.text();
        for (index, check) in checks.iter().enumerate() {
            let prefix = format!("{index} ");
            let result = printed.lines().find_map(|line| line.strip_prefix(&prefix));
            let result =
                result.ok_or_else(|| untried(format!("{}, {}", exit.status, exit.stderr.text().trim())))?;
            check.judge(result)?;
        }
        judge_canaries(&canaries.all(), &canaries.all_reached(), self.gateway_ip())
    }

    /// The probes; none if nothing is restricted. It is an error if there is no address to probe.
    fn checks(&self, canaries: &[Canary]) -> Result<Vec<CurlCheck>, SealError> {
        let mut checks = match self {
            Self::Open | Self::Attached => return Ok(Vec::new()),
            Self::Blocked => Vec::new(),
            Self::Filtered => vec![denied_name(&Beacon::random())],
            Self::Gateway(gateway) => gateway_checks(gateway),
        };
        let (near, elsewhere): (Vec<&Canary>, Vec<&Canary>) = canaries
            .iter()
            .partition(|canary| Some(canary.address().ip()) == self.gateway_ip());
        if checks.is_empty() && elsewhere.is_empty() {
            let reason = "the host has no address that the VM could probe";
            return Err(SealError::NotProbed(reason.to_owned()));
        }
        checks.push(CurlCheck {
            name: "curl works in the VM",
            arguments: "--noproxy '*' http://127.0.0.1:9/".to_owned(),
            expected: CurlResult::Refused,
        });
        let probe = |canary: &Canary, name, proxy| CurlCheck {
            name,
            arguments: format!("{proxy}{}", canary.url()),
            expected: CurlResult::Failure,
        };
        let direct = "--noproxy '*' ";
        checks.extend(
            near.into_iter()
                .map(|canary| probe(canary, "a probe to the gateway's address is received", direct)),
        );
        checks.extend(elsewhere.into_iter().flat_map(|canary| {
            [direct, ""].map(|proxy| probe(canary, "the host's ports are unreachable", proxy))
        }));
        Ok(checks)
    }

    /// The address of the host at which the VM reaches all ports: Softnet does not filter by port.
    fn gateway_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Gateway(gateway) => Some(gateway.address.ip()),
            Self::Open | Self::Attached | Self::Blocked | Self::Filtered => None,
        }
    }
}

/// Judges what the host received. Canaries at the gateway's address are the positive control: the VM must reach them, so
/// that silence at all others means something.
fn judge_canaries(
    canaries: &[Canary],
    reached: &BTreeSet<SocketAddr>,
    gateway: Option<IpAddr>,
) -> Result<(), SealError> {
    let is_control = |address: &SocketAddr| Some(address.ip()) == gateway;
    if let Some(address) = reached.iter().find(|address| !is_control(address)) {
        return Err(SealError::Escaped(*address));
    }
    let mut controls = canaries.iter().map(Canary::address).filter(is_control);
    match controls.find(|address| !reached.contains(address)) {
        Some(address) => Err(SealError::NotReceived(address)),
        None => Ok(()),
    }
}

/// A call of `curl -qsf`, and its expected result.
#[derive(Debug)]
struct CurlCheck {
    name: &'static str,
    arguments: String,
    expected: CurlResult,
}

#[derive(Debug, PartialEq, Eq)]
enum CurlResult {
    /// A response with this body.
    Body(String),
    /// A response that refuses the request.
    Refusal,
    /// A connection that is refused.
    Refused,
    /// No success. The canaries show what was received.
    Failure,
}

impl CurlCheck {
    /// Judges the line of the script's output: the exit code and the output of `curl`.
    fn judge(&self, printed: &str) -> Result<(), SealError> {
        let (code, output) = printed.split_once(' ').unwrap_or((printed, ""));
        let code: i32 = code.parse().unwrap_or(NO_CURL);
        if code >= NO_CURL {
            return Err(SealError::NotProbed("the VM has no `curl`".to_owned()));
        }
        let holds = match &self.expected {
            CurlResult::Body(body) => code == 0 && output == body,
            CurlResult::Refusal => code == HTTP_ERROR && output == FORBIDDEN,
            CurlResult::Refused => code == REFUSED,
            CurlResult::Failure if code != 0 && !NO_SUCCESS.contains(&code) => {
                let call = format!("`curl {}`", self.arguments);
                return Err(SealError::NotProbed(format!("{call} exited with {code}")));
            }
            CurlResult::Failure => code != 0,
        };
        if holds {
            return Ok(());
        }
        Err(SealError::Probe(ProbeFailure {
            check: self.name,
            probe: format!("curl -qsf {}", self.arguments),
            result: format!("curl exited with {code} {output}").trim_end().to_owned(),
        }))
    }
}

fn gateway_checks(gateway: &VmGateway) -> Vec<CurlCheck> {
    let beacon = &gateway.beacon;
    let reached = CurlCheck {
        name: "the VM reaches its own gateway",
        arguments: format!("http://{}/", beacon.name),
        expected: CurlResult::Body(beacon.nonce.clone()),
    };
    let denied = gateway.denies_unknown_names().then(|| denied_name(beacon));
    std::iter::once(reached).chain(denied).collect()
}

/// A check for a name that cannot exist, and that no policy can list.
fn denied_name(beacon: &Beacon) -> CurlCheck {
    CurlCheck {
        name: "a denied name is refused",
        arguments: format!(
            "-o /dev/null -w '%{{http_code}}' http://{}.{}/",
            beacon.nonce, beacon.name
        ),
        expected: CurlResult::Refusal,
    }
}

/// A script that runs the checks, some in parallel, and prints a line about each.
fn script(checks: &[CurlCheck]) -> String {
    let lines = checks.iter().enumerate().map(|(index, check)| {
        let seconds = match check.expected {
            CurlResult::Body(_) | CurlResult::Refusal | CurlResult::Refused => SUCCESS_SECONDS,
            CurlResult::Failure => FAILURE_SECONDS,
        };
        let arguments = &check.arguments;
        // With `-q` no settings of the image apply.
        let line = format!(
            "{{ output=$(curl -q -gsf --max-time {seconds} {arguments}); echo \"{index} $? $output\"; }} &\n"
        );
        match (index + 1) % PARALLEL {
            0 => format!("{line}wait\n"),
            _ => line,
        }
    });
    lines.chain(["wait\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn canaries() -> [Canary; 2] {
        [
            Canary::Tcp("192.0.2.7:1234".parse().unwrap()),
            Canary::Dns("192.0.2.7".parse().unwrap()),
        ]
    }

    #[rstest]
    #[case::open(VmNetwork::Open)]
    #[case::attached(VmNetwork::Attached)]
    fn a_network_that_ralph_did_not_restrict_is_not_probed(#[case] network: VmNetwork) {
        assert!(network.checks(&canaries()).unwrap().is_empty());
    }

    #[test]
    fn a_network_that_cannot_be_probed_is_an_error() {
        let untried = VmNetwork::Blocked.checks(&[]).unwrap_err();
        assert!(matches!(untried, SealError::NotProbed(_)), "{untried:?}");
    }

    #[test]
    fn every_canary_is_probed_directly_and_through_the_proxy() {
        let lines: Vec<String> = VmNetwork::Blocked
            .checks(&canaries())
            .unwrap()
            .into_iter()
            .map(|check| check.arguments)
            .collect();
        let expected = [
            "--noproxy '*' http://127.0.0.1:9/",
            "--noproxy '*' http://192.0.2.7:1234/",
            "http://192.0.2.7:1234/",
            "--noproxy '*' tftp://192.0.2.7:53/x",
            "tftp://192.0.2.7:53/x",
        ];
        assert_eq!(lines, expected);
    }

    #[rstest]
    #[case::the_body(CurlResult::Body("n0nce".to_owned()), "0 n0nce", true)]
    #[case::another_body(CurlResult::Body("n0nce".to_owned()), "0 hello", false)]
    #[case::no_body(CurlResult::Body("n0nce".to_owned()), "7 ", false)]
    #[case::a_refusal(CurlResult::Refusal, "22 403", true)]
    #[case::another_error_in_its_place(CurlResult::Refusal, "22 502", false)]
    #[case::silence_in_its_place(CurlResult::Refusal, "28 000", false)]
    #[case::an_answer_in_its_place(CurlResult::Refusal, "0 200", false)]
    #[case::silence(CurlResult::Failure, "28 ", true)]
    #[case::an_answer(CurlResult::Failure, "0 hello", false)]
    #[case::no_curl(CurlResult::Failure, "127 ", false)]
    #[case::an_unsupported_protocol(CurlResult::Failure, "1 ", false)]
    #[case::a_malformed_url(CurlResult::Failure, "3 ", false)]
    #[case::refused(CurlResult::Refused, "7 ", true)]
    #[case::silence_instead_of_a_refusal(CurlResult::Refused, "28 ", false)]
    fn a_check_is_judged_by_the_result_of_curl(
        #[case] expected: CurlResult,
        #[case] printed: &str,
        #[case] holds: bool,
    ) {
        let check = CurlCheck {
            name: "it holds",
            arguments: String::new(),
            expected,
        };
        assert_eq!(check.judge(printed).is_ok(), holds);
    }

    #[rstest]
    #[case::the_control_is_received(&["192.0.2.1:80", "192.0.2.1:53"], true)]
    #[case::nothing_is_received(&[], false)]
    #[case::only_tcp_is_received(&["192.0.2.1:80"], false)]
    #[case::another_is_received(&["192.0.2.1:80", "192.0.2.1:53", "192.0.2.7:80"], false)]
    fn silence_proves_something_only_if_the_control_is_received(
        #[case] reached: &[&str],
        #[case] holds: bool,
    ) {
        let canaries = [
            Canary::Tcp("192.0.2.1:80".parse().unwrap()),
            Canary::Dns("192.0.2.1".parse().unwrap()),
            Canary::Tcp("192.0.2.7:80".parse().unwrap()),
        ];
        let reached = reached.iter().map(|address| address.parse().unwrap()).collect();
        let judged = judge_canaries(&canaries, &reached, Some("192.0.2.1".parse().unwrap()));
        assert_eq!(judged.is_ok(), holds, "{judged:?}");
    }
}
