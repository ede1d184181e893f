//! What keeps a machine from the network, and what is tried from inside to show it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::canary::Canaries;
use super::super::docker::SealError;
use super::outlet::Outlet;
use super::plain::Plain;
use crate::exec::{Command, Discard};
use crate::network::probe::{Beacon, Canary, ProbeFailure};

/// How long all that is tried together may take; each has its own, shorter time.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many seconds an answer may take that must come, on a machine with much to do; and how many are waited for one that
/// must not, which is in vain where it is dropped.
const ANSWER_SECONDS: u32 = 15;
const SILENCE_SECONDS: u32 = 1;
/// What `curl -f` ends with when it was answered by an error, and the status of one that is a refusal.
const ANSWERED_BY_ERROR: i32 = 22;
const FORBIDDEN: &str = "403";
/// From here on it is the shell that speaks, not `curl`.
const NO_CURL: i32 = 126;

/// What keeps a machine from the network.
#[derive(Debug)]
pub(in crate::sandbox) enum Border {
    /// Nothing does, nor was it asked for.
    Open,
    /// Whoever has the machine sees to it. What it is was not asked.
    Theirs,
    /// Nothing is within reach.
    Shut,
    /// The program that makes the machine tells names apart, and answers in place of those that are denied.
    Names,
    /// Nothing is within reach but a gateway on this machine.
    Gateway(Outlet),
}

impl Border {
    /// The variables by which programs inside find their way.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        match self {
            Self::Gateway(outlet) => outlet.variables(),
            Self::Open | Self::Theirs | Self::Shut | Self::Names => BTreeMap::new(),
        }
    }

    /// Shows from inside that it holds. The first thing that is not as it must be is the error.
    pub(super) async fn prove(&self, plain: &Plain) -> Result<(), SealError> {
        if matches!(self, Self::Open | Self::Theirs) {
            return Ok(());
        }
        let untried = |reason: String| SealError::Untried(reason);
        let opened = tokio::task::spawn_blocking(Canaries::open).await;
        let canaries = opened.map_err(|error| untried(error.to_string()))??;
        let checks = self.checks(&canaries.all())?;
        let command = Command::shell(script(&checks)).timeout(PATIENCE);
        let exit = plain.run(&command, &mut Discard).await;
        let exit = exit.map_err(|error| untried(error.to_string()))?;
        let printed = exit.stdout.text();
        for (index, check) in checks.iter().enumerate() {
            let prefix = format!("{index} ");
            let seen = printed.lines().find_map(|line| line.strip_prefix(&prefix));
            let seen =
                seen.ok_or_else(|| untried(format!("{}, {}", exit.status, exit.stderr.text().trim())))?;
            check.judge(seen)?;
        }
        canaries
            .heard()
            .map_or(Ok(()), |address| Err(SealError::Heard(address)))
    }

    /// What shows that it holds; nothing where there is nothing to show. That nothing can be tried is no proof.
    fn checks(&self, canaries: &[Canary]) -> Result<Vec<Check>, SealError> {
        let mut checks = match self {
            Self::Open | Self::Theirs => return Ok(Vec::new()),
            Self::Shut => Vec::new(),
            Self::Names => vec![denied(&Beacon::random())],
            Self::Gateway(outlet) => of_gateway(outlet),
        };
        // Softnet tells no ports apart, so that what listens at the gateway's own address is within reach.
        let beside = canaries.iter().filter(|canary| match self {
            Self::Gateway(outlet) => canary.address().ip() != outlet.address(),
            Self::Open | Self::Theirs | Self::Shut | Self::Names => true,
        });
        checks.extend(beside.flat_map(|canary| {
            ["--noproxy '*' ", ""].map(|way| Check {
                name: "this machine's ports are not reached",
                arguments: format!("{way}{}", canary.url()),
                expected: Expected::Failure,
            })
        }));
        if checks.is_empty() {
            let reason = "this machine has no address of its own that could be tried from inside";
            return Err(SealError::Untried(reason.to_owned()));
        }
        Ok(checks)
    }
}

/// Something that is tried by `curl -sf`, and what must come of it.
#[derive(Debug)]
struct Check {
    name: &'static str,
    arguments: String,
    expected: Expected,
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// These words.
    Words(String),
    /// An answer that refuses.
    Refusal,
    /// No success, whatever the reason. That nobody heard of it is shown by who listens.
    Failure,
}

impl Check {
    /// Takes what a shell printed about it: how `curl` ended, and what it said.
    fn judge(&self, printed: &str) -> Result<(), SealError> {
        let (code, said) = printed.split_once(' ').unwrap_or((printed, ""));
        let code: i32 = code.parse().unwrap_or(NO_CURL);
        if code >= NO_CURL {
            return Err(SealError::Untried("it has no `curl`".to_owned()));
        }
        let holds = match &self.expected {
            Expected::Words(words) => code == 0 && said == words,
            Expected::Refusal => code == ANSWERED_BY_ERROR && said == FORBIDDEN,
            Expected::Failure => code != 0,
        };
        if holds {
            return Ok(());
        }
        Err(SealError::Probe(ProbeFailure {
            check: self.name,
            probe: format!("curl -sf {}", self.arguments),
            result: format!("curl ended with {code} {said}").trim_end().to_owned(),
        }))
    }
}

fn of_gateway(outlet: &Outlet) -> Vec<Check> {
    let beacon = outlet.beacon();
    let leads = Check {
        name: "the machine's network leads to its own gateway",
        arguments: format!("http://{}/", beacon.name),
        expected: Expected::Words(beacon.nonce.clone()),
    };
    let denied = outlet.denies_unknown_names().then(|| denied(beacon));
    std::iter::once(leads).chain(denied).collect()
}

/// Of a name that nobody can have, and no policy can list.
fn denied(beacon: &Beacon) -> Check {
    Check {
        name: "a denied name is refused",
        arguments: format!(
            "-o /dev/null -w '%{{http_code}}' http://{}.{}/",
            beacon.nonce, beacon.name
        ),
        expected: Expected::Refusal,
    }
}

/// Tries everything at once, and prints a line about each.
fn script(checks: &[Check]) -> String {
    let lines = checks.iter().enumerate().map(|(index, check)| {
        let seconds = match check.expected {
            Expected::Words(_) | Expected::Refusal => ANSWER_SECONDS,
            Expected::Failure => SILENCE_SECONDS,
        };
        let arguments = &check.arguments;
        format!("{{ said=$(curl -gsf --max-time {seconds} {arguments}); echo \"{index} $? $said\"; }} &\n")
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
    #[case::nobody_closed_it(Border::Open)]
    #[case::somebody_else_did(Border::Theirs)]
    fn what_we_did_not_close_is_not_tried(#[case] border: Border) {
        assert!(border.checks(&canaries()).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_tried_is_not_taken_for_closed() {
        let untried = Border::Shut.checks(&[]).unwrap_err();
        assert!(matches!(untried, SealError::Untried(_)), "{untried:?}");
    }

    #[test]
    fn every_canary_is_tried_directly_and_by_the_proxy_that_variables_name() {
        let lines: Vec<String> = Border::Shut
            .checks(&canaries())
            .unwrap()
            .into_iter()
            .map(|check| check.arguments)
            .collect();
        let expected = [
            "--noproxy '*' http://192.0.2.7:1234/",
            "http://192.0.2.7:1234/",
            "--noproxy '*' tftp://192.0.2.7:53/x",
            "tftp://192.0.2.7:53/x",
        ];
        assert_eq!(lines, expected);
    }

    #[rstest]
    #[case::the_words(Expected::Words("n0nce".to_owned()), "0 n0nce", true)]
    #[case::other_words(Expected::Words("n0nce".to_owned()), "0 hello", false)]
    #[case::no_words(Expected::Words("n0nce".to_owned()), "7 ", false)]
    #[case::a_refusal(Expected::Refusal, "22 403", true)]
    #[case::another_error_in_its_place(Expected::Refusal, "22 502", false)]
    #[case::silence_in_its_place(Expected::Refusal, "28 000", false)]
    #[case::an_answer_in_its_place(Expected::Refusal, "0 200", false)]
    #[case::silence(Expected::Failure, "28 ", true)]
    #[case::an_answer(Expected::Failure, "0 hello", false)]
    #[case::no_curl(Expected::Failure, "127 ", false)]
    fn a_check_holds_by_what_curl_ends_with(
        #[case] expected: Expected,
        #[case] printed: &str,
        #[case] holds: bool,
    ) {
        let check = Check {
            name: "it holds",
            arguments: String::new(),
            expected,
        };
        assert_eq!(check.judge(printed).is_ok(), holds);
    }
}
