//! Hosts that people add to the policy of a run: at once where a gateway is open, and again after a resume.

use crate::network::{PolicyRule, host_rule};
use crate::state::{Intervention, InterventionRequest, JournalEntry, JournalLine};

use super::RunInputs;

impl RunInputs<'_> {
    /// Lets the sandbox reach the hosts of a request. Harmless if it may already. Returns why it is refused, if so.
    pub(super) fn allow_hosts(self, asked: &InterventionRequest) -> Option<String> {
        let Intervention::AllowHosts { hosts } = &asked.intervention else {
            return None;
        };
        let provider = &self.parts.provider;
        if !provider.capabilities().widens_policy() {
            return Some(format!(
                "the provider `{}` takes the policy only when it creates a sandbox",
                provider.name()
            ));
        }
        match self.rules(asked, hosts) {
            Err(reason) => Some(reason),
            Ok(rules) => {
                let objection = rules.iter().find_map(|rule| self.spec.network.objection_to(rule));
                if objection.is_none() {
                    self.spec.egress.added.add(rules);
                }
                objection
            }
        }
    }

    /// The rules of a request, or why one may not be added. Their place, which the audit shows, says who asked.
    fn rules(self, asked: &InterventionRequest, hosts: &[String]) -> Result<Vec<PolicyRule>, String> {
        let place = format!(
            "allowed by {}, {}",
            asked.by,
            asked.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        );
        let allowable = &self.settings.allowable_hosts;
        hosts
            .iter()
            .map(|host| Ok(allowable.rule(host)?.at(&place)))
            .collect()
    }

    /// Lets the sandbox reach what people allowed before.
    pub(super) fn allow_hosts_again(self, lines: &[JournalLine]) {
        for line in lines {
            if let JournalEntry::Intervened { asked, refused: None } = &line.entry
                && let Some(reason) = self.allow_hosts(asked)
            {
                let what = asked.intervention.summary();
                self.reporter
                    .warn(format!("no longer possible: {what}: {reason}"));
            }
        }
    }

    /// What the agent and people have to know about allowed hosts, if anything: ports that are not open yet.
    pub(super) fn closed_ports(self, hosts: &[String]) -> Option<String> {
        let open = self.spec.network.ports();
        let ports = hosts.iter().filter_map(|host| host_rule(host).ok()?.pattern.port);
        let closed: Vec<String> = ports
            .filter(|port| !open.contains(port))
            .map(|port| port.to_string())
            .collect();
        (!closed.is_empty()).then(|| {
            format!(
                "the sandbox reaches port {} from its next start on: `ralph pause`, then `ralph resume`",
                closed.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::network::{AllowableHosts, Policy, PolicyRequest};
    use crate::runner::interventions::until_stopped;
    use crate::runner::tests::TestRun;

    fn request(hosts: &[&str]) -> InterventionRequest {
        let hosts = hosts.iter().map(ToString::to_string).collect();
        InterventionRequest::new(
            Intervention::AllowHosts { hosts },
            "someone",
            Timestamp::UNIX_EPOCH,
        )
    }

    fn verdict(run: &TestRun, host: &str) -> String {
        let policy = run.spec.egress.added.widen(run.spec.network.clone());
        let request = PolicyRequest::opaque(host.parse().unwrap(), 443);
        policy
            .judge(&request)
            .map_or_else(|denial| denial.to_string(), |line| line.to_string())
    }

    #[tokio::test]
    async fn a_request_is_in_force_before_it_is_carried_out_and_stays_in_the_inbox() {
        let mut run = TestRun::new().await;
        run.spec.network = Policy::allowlist([]);
        assert_eq!(verdict(&run, "api.example"), "host not in policy");
        run.dir.inbox().leave(&request(&["api.example"])).unwrap();
        let polling = std::time::Duration::from_secs(1);
        let _ = tokio::time::timeout(polling, until_stopped(run.inputs())).await;
        assert_eq!(
            verdict(&run, "api.example"),
            "`api.example` (allowed by someone, 1970-01-01T00:00:00Z)"
        );
        assert_eq!(run.dir.inbox().pending().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn what_the_journal_says_is_allowed_again_and_what_was_refused_is_not() {
        let mut run = TestRun::new().await;
        run.spec.network = Policy::allowlist([]);
        let mut progress = run.progress().await;
        for (host, refused) in [("a.example", None), ("b.example", Some("no".to_owned()))] {
            let asked = Box::new(request(&[host]));
            progress
                .append(JournalEntry::Intervened { asked, refused })
                .unwrap();
        }
        run.inputs().allow_hosts_again(progress.journal.lines());
        assert!(verdict(&run, "a.example").contains("allowed by someone"));
        assert_eq!(verdict(&run, "b.example"), "host not in policy");
    }

    #[tokio::test]
    async fn what_may_not_be_added_any_more_is_not_allowed_again() {
        let mut run = TestRun::new().await;
        run.spec.network = Policy::allowlist([]);
        let refused = run.inputs().allow_hosts(&request(&["*.api.example"])).unwrap();
        assert!(refused.contains("is a wildcard"), "{refused}");
        run.settings.allowable_hosts = AllowableHosts::Listed(Vec::new());
        let refused = run.inputs().allow_hosts(&request(&["a.example"])).unwrap();
        assert!(refused.contains("nothing may be added"), "{refused}");
        assert_eq!(verdict(&run, "a.example"), "host not in policy");
    }

    #[tokio::test]
    async fn a_policy_that_cannot_be_widened_refuses() {
        let run = TestRun::new().await;
        let refused = run.inputs().allow_hosts(&request(&["a.example"])).unwrap();
        assert!(refused.contains("allows every host already"), "{refused}");
        assert_eq!(
            run.inputs()
                .closed_ports(&["a.example:443".into(), "b.example:5432".into()]),
            Some(
                "the sandbox reaches port 5432 from its next start on: `ralph pause`, then `ralph resume`"
                    .to_owned()
            )
        );
    }
}
