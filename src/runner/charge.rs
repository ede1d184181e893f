//! What an agent program's session used. It calls its model by itself, so nothing is known before and little during.

use std::collections::BTreeSet;

use crate::event::EventKind;
use crate::model::Profile;
use crate::state::{CallUsage, JournalEntry, JournalLine};
use crate::usage::{Tokens, Usd};

use super::error::Halt;
use super::metering::AgentMetering;
use super::run::Run;
use super::session::AgentAttempt;

/// What is set aside for a session: its price is unknown until it is over.
const UNKNOWN: CallUsage = CallUsage {
    tokens: Tokens { input: 0, output: 0 },
    cost: None,
};

impl Run<'_> {
    /// What may still be spent, where there is a limit.
    pub(super) fn cost_left(&self) -> Option<Usd> {
        let limit = self.settings.budget.max_cost?;
        Some(limit.since(self.ledger().cost))
    }

    /// Puts on record that a session begins that calls its model by itself. Whoever dies now leaves a call whose price
    /// nobody knows but the meter.
    pub(super) fn open_account(
        &mut self,
        iteration: u32,
        metering: Option<&AgentMetering>,
    ) -> Result<u64, Halt> {
        let ledger = self.ledger();
        ledger.check_call(&self.settings.budget, UNKNOWN)?;
        let call = ledger.calls + 1;
        if let Some(metering) = metering {
            // Before the journal tells of it, so that there is none in the journal that the meter does not know.
            metering.meter.begin_session(call, iteration)?;
        }
        self.note(JournalEntry::Calling {
            call,
            iteration,
            reserved: UNKNOWN,
        })?;
        Ok(call)
    }

    /// Puts on record what the session used, however it ended. This is the one place where that comes in: by the
    /// meter where that counts its calls, else by its own account, priced by the profile where that has a price.
    pub(super) fn settle_account(
        &mut self,
        attempt: &mut AgentAttempt,
        profile: &Profile,
    ) -> Result<(), Halt> {
        let Some(call) = attempt.account.take() else {
            return Ok(());
        };
        let said = attempt
            .session
            .reported_usage(&attempt.printed)
            .unwrap_or_default();
        let counted = attempt.metering.as_ref().and_then(|metering| {
            metering.close();
            metering.used_in(call)
        });
        let tokens = counted.map(|counted| counted.tokens).or(said.tokens);
        let spent = CallUsage {
            tokens: tokens.unwrap_or_default(),
            cost: counted
                .and_then(|counted| counted.cost)
                .or_else(|| profile.cost_of(tokens?))
                .or(said.cost),
        };
        self.note(JournalEntry::Called { call, spent })?;
        self.reporter.emit(EventKind::ModelAnswered {
            model: self.parts.agents.for_profile(&profile.name).name().to_owned(),
            tokens: tokens.map(Tokens::total),
            cost_usd: spent.cost.map(Usd::dollars),
        });
        Ok(())
    }

    /// Puts on record what sessions used that a crash cut short: the meter had it written down call by call. What it
    /// does not know stays unknown.
    pub(super) fn settle_what_a_crash_left(&mut self) -> Result<(), Halt> {
        let Some(metering) = &self.parts.metering else {
            return Ok(());
        };
        metering.close();
        for call in unsettled(self.journal.lines()) {
            if let Some(spent) = metering.used_in(call) {
                self.note(JournalEntry::Called { call, spent })?;
            }
        }
        Ok(())
    }
}

/// The calls that never came back.
fn unsettled(lines: &[JournalLine]) -> BTreeSet<u64> {
    let mut calls = BTreeSet::new();
    for line in lines {
        match &line.entry {
            JournalEntry::Calling { call, .. } => {
                calls.insert(*call);
            }
            JournalEntry::Called { call, .. } => {
                calls.remove(call);
            }
            _ => {}
        }
    }
    calls
}
