//! A probe, what must be seen of it, and whether it was.

use super::seen::{Seen, is_refusal};
use super::trial::Probe;

/// A probe and what must be seen of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it shows.
    pub name: &'static str,
    /// What is tried.
    pub probe: Probe,
    /// What must be seen.
    pub expected: Expected,
}

/// What must be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// That nothing is there, at once.
    Nothing,
    /// That there is no such name.
    NoSuchName,
    /// That nobody but the gateway was asked: its own name has an address, or nobody is there at once.
    GatewayAlone,
    /// That the gateway denies it.
    Denied,
    /// What the sandbox's own gateway says of itself.
    Beacon(String),
    /// That the gateway refuses what was said, in words of HTTP or TLS, or by ending the connection.
    Refusal,
    /// That the gateway's DNS knows no such name, or nobody is there at once.
    Unknown,
    /// That the sandbox itself is there, or nobody, at once; an address that nobody else has.
    Own,
    /// That it cannot be done.
    Impossible,
}

impl Check {
    pub(super) fn new(name: &'static str, probe: Probe, expected: Expected) -> Self {
        Self {
            name,
            probe,
            expected,
        }
    }

    /// What is wrong, when it is not what must be seen.
    #[must_use]
    pub fn failure(&self, seen: &Seen) -> Option<ProbeFailure> {
        let holds = match (&self.expected, seen) {
            (Expected::Nothing | Expected::Unknown, Seen::Refused | Seen::Unreachable)
            | (Expected::NoSuchName, Seen::NoSuchName)
            | (Expected::Refusal, Seen::Refused)
            | (Expected::Impossible, Seen::Forbidden | Seen::Absent)
            | (
                Expected::Own,
                Seen::Answered | Seen::Refused | Seen::Unreachable | Seen::Forbidden | Seen::Absent,
            )
            | (Expected::GatewayAlone, Seen::At(_) | Seen::Refused | Seen::Unreachable)
            | (Expected::Denied, Seen::Refused | Seen::Unreachable | Seen::Http { status: 403, .. }) => true,
            (Expected::Refusal, Seen::Heard(bytes)) => is_refusal(bytes),
            (Expected::Unknown, Seen::Heard(bytes)) => self.probe.is_told_of_no_such_name(bytes),
            (Expected::Beacon(says), Seen::Http { status: 200, text }) => says == text,
            _ => false,
        };
        (!holds).then(|| ProbeFailure {
            check: self.name,
            tried: self.probe.to_string(),
            seen: seen.to_string(),
        })
    }
}

/// A probe that saw what must not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not shown: {check} (tried: {tried}; seen: {seen})")]
pub struct ProbeFailure {
    /// What it should have shown.
    pub check: &'static str,
    /// What was tried.
    pub tried: String,
    /// What was seen.
    pub seen: String,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::Carrier;
    use super::*;

    #[rstest]
    #[case::a_status_that_refuses("HTTP/1.1 403 Forbidden\r\n", Expected::Refusal, true)]
    #[case::a_status_that_does_not("HTTP/1.1 200 OK\r\n", Expected::Refusal, false)]
    #[case::an_alert("\u{15}\u{3}\u{3}", Expected::Refusal, true)]
    #[case::a_hello("\u{16}\u{3}\u{3}", Expected::Refusal, false)]
    #[case::an_end("", Expected::Refusal, true)]
    #[case::no_such_name("re\u{1}\u{3}", Expected::Unknown, true)]
    #[case::a_name("re\u{1}\u{0}", Expected::Unknown, false)]
    fn an_answer_is_told_from_a_refusal(
        #[case] answer: &str,
        #[case] expected: Expected,
        #[case] holds: bool,
    ) {
        let probe = Probe::Say {
            over: Carrier::Udp,
            to: "192.0.2.1:53".parse().unwrap(),
            bytes: vec![0, 255],
        };
        assert_eq!(probe.to_string(), "say udp 192.0.2.1:53 00ff");
        let hex: Vec<String> = answer.bytes().map(|byte| format!("{byte:02x}")).collect();
        let check = Check::new("it is refused", probe, expected);
        assert_eq!(
            check
                .failure(&Seen::parse(&format!("received {}", hex.concat())))
                .is_none(),
            holds
        );
    }

    #[rstest]
    #[case::by_itself("answered", true)]
    #[case::not_at_all("forbidden", true)]
    #[case::by_nobody_in_time("silent", false)]
    fn an_echo_request_to_nobody_is_answered_by_the_sandbox_or_not_made(
        #[case] line: &str,
        #[case] holds: bool,
    ) {
        let probe = Probe::Echo("192.0.2.1".parse().unwrap());
        assert_eq!(probe.to_string(), "echo 192.0.2.1");
        let check = Check::new("it stays inside", probe, Expected::Own);
        assert_eq!(check.failure(&Seen::parse(line)).is_none(), holds);
    }
}
