//! A probe and the result it must have.

use super::wire::{Probe, ProbeResult, is_refusal};

/// A probe and the result it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeCheck {
    /// What the check shows, as a sentence.
    pub name: &'static str,
    /// What to try.
    pub probe: Probe,
    /// The result that it must have.
    pub expected: ProbeExpectation,
}

/// The result that a probe must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeExpectation {
    /// Refused or unreachable, at once.
    Nothing,
    /// The name does not exist.
    NoSuchName,
    /// Only the gateway's DNS answered: its own name has an address. Or refused or unreachable, at once.
    GatewayAlone,
    /// The gateway denies it.
    Denied,
    /// The gateway's beacon, with this nonce.
    Beacon(String),
    /// The gateway refuses it with an HTTP status, a TLS alert, or by closing the connection.
    Refusal,
    /// The gateway's DNS answers that the name does not exist. Or refused or unreachable, at once.
    Unknown,
    /// The sandbox itself answers, or nothing does. For addresses that no other host has.
    Own,
    /// The operation fails.
    Impossible,
    /// The seccomp profile refuses it. A kernel that lacks it does not count.
    Filtered,
    /// The operation succeeds.
    Possible,
}

impl ProbeCheck {
    pub(super) fn new(name: &'static str, probe: Probe, expected: ProbeExpectation) -> Self {
        Self {
            name,
            probe,
            expected,
        }
    }

    /// Compares a result with the expectation. Returns `None` if it holds.
    #[must_use]
    pub fn failure(&self, result: &ProbeResult) -> Option<ProbeFailure> {
        let holds = match (&self.expected, result) {
            (
                ProbeExpectation::Nothing | ProbeExpectation::Unknown,
                ProbeResult::Refused | ProbeResult::Unreachable,
            )
            | (ProbeExpectation::NoSuchName, ProbeResult::NoSuchName)
            | (ProbeExpectation::Refusal, ProbeResult::Refused)
            | (
                ProbeExpectation::Impossible,
                ProbeResult::Forbidden | ProbeResult::Absent | ProbeResult::Filtered,
            )
            | (ProbeExpectation::Filtered, ProbeResult::Filtered)
            | (ProbeExpectation::Possible, ProbeResult::Done)
            | (
                ProbeExpectation::Own,
                ProbeResult::Answered
                | ProbeResult::Refused
                | ProbeResult::Unreachable
                | ProbeResult::Forbidden
                | ProbeResult::Absent,
            )
            | (
                ProbeExpectation::GatewayAlone,
                ProbeResult::Address(_) | ProbeResult::Refused | ProbeResult::Unreachable,
            )
            | (
                ProbeExpectation::Denied,
                ProbeResult::Refused | ProbeResult::Unreachable | ProbeResult::Http { status: 403, .. },
            ) => true,
            (ProbeExpectation::Refusal, ProbeResult::Received(bytes)) => is_refusal(bytes),
            (ProbeExpectation::Unknown, ProbeResult::Received(bytes)) => self.probe.is_nxdomain(bytes),
            (ProbeExpectation::Beacon(nonce), ProbeResult::Http { status: 200, text }) => nonce == text,
            _ => false,
        };
        (!holds).then(|| ProbeFailure {
            check: self.name,
            probe: self.probe.to_string(),
            result: result.to_string(),
        })
    }
}

/// A probe whose result is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network check failed: {check} (probe: {probe}; result: {result})")]
pub struct ProbeFailure {
    /// What the check should have shown.
    pub check: &'static str,
    /// What was tried.
    pub probe: String,
    /// What happened.
    pub result: String,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::ProbeTransport;
    use super::*;

    #[rstest]
    #[case::a_status_that_refuses("HTTP/1.1 403 Forbidden\r\n", ProbeExpectation::Refusal, true)]
    #[case::a_status_that_does_not("HTTP/1.1 200 OK\r\n", ProbeExpectation::Refusal, false)]
    #[case::an_alert("\u{15}\u{3}\u{3}", ProbeExpectation::Refusal, true)]
    #[case::a_hello("\u{16}\u{3}\u{3}", ProbeExpectation::Refusal, false)]
    #[case::an_end("", ProbeExpectation::Refusal, true)]
    #[case::no_such_name("re\u{1}\u{3}", ProbeExpectation::Unknown, true)]
    #[case::a_name("re\u{1}\u{0}", ProbeExpectation::Unknown, false)]
    fn a_refusal_differs_from_other_answers(
        #[case] answer: &str,
        #[case] expected: ProbeExpectation,
        #[case] holds: bool,
    ) {
        let probe = Probe::Exchange {
            transport: ProbeTransport::Udp,
            to: "192.0.2.1:53".parse().unwrap(),
            bytes: vec![0, 255],
        };
        assert_eq!(probe.to_string(), "say udp 192.0.2.1:53 00ff");
        let hex: Vec<String> = answer.bytes().map(|byte| format!("{byte:02x}")).collect();
        let check = ProbeCheck::new("it is refused", probe, expected);
        assert_eq!(
            check
                .failure(&ProbeResult::parse(&format!("received {}", hex.concat())))
                .is_none(),
            holds
        );
    }

    #[rstest]
    #[case::by_itself("answered", true)]
    #[case::not_at_all("forbidden", true)]
    #[case::not_in_time("silent", false)]
    fn an_echo_request_to_an_unused_address_is_answered_by_the_sandbox_or_not_sent(
        #[case] line: &str,
        #[case] holds: bool,
    ) {
        let probe = Probe::Echo("192.0.2.1".parse().unwrap());
        assert_eq!(probe.to_string(), "echo 192.0.2.1");
        let check = ProbeCheck::new("it stays inside", probe, ProbeExpectation::Own);
        assert_eq!(check.failure(&ProbeResult::parse(line)).is_none(), holds);
    }
}
