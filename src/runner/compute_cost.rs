//! The estimated cost of a run's sandbox.

use std::fmt;
use std::time::Duration;

use crate::sandbox::HourlyCost;
use crate::usage::Usd;

use super::budget::Ledger;

/// The estimated cost of a sandbox, from the provider's price per hour and the time the run was open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeCost {
    /// The estimate.
    pub cost: Usd,
    /// The time at work and waiting: the sandbox exists during both.
    pub time: Duration,
    /// The resources that were paid for, for people.
    pub resources: String,
}

impl ComputeCost {
    pub(super) fn new(hourly: HourlyCost, ledger: &Ledger) -> Self {
        let time = ledger.worked + ledger.waited;
        Self {
            cost: hourly.price.for_duration(time),
            time,
            resources: hourly.resources,
        }
    }
}

impl fmt::Display for ComputeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.time.as_secs_f64() / 60.0;
        write!(
            f,
            "{} estimated ({minutes:.1} minutes; {})",
            self.cost, self.resources
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_paid_for_as_work_is() {
        let hourly = HourlyCost {
            price: Usd::from_dollars(0.6).unwrap(),
            resources: "processors: 4".to_owned(),
        };
        let ledger = Ledger {
            worked: Duration::from_secs(20 * 60),
            waited: Duration::from_secs(10 * 60),
            ..Ledger::default()
        };
        let text = ComputeCost::new(hourly, &ledger).to_string();
        assert_eq!(text, "$0.3000 estimated (30.0 minutes; processors: 4)");
    }
}
