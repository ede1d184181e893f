//! Attacks on the budget: calls that together use more than it.

use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::calls::{BrokerTarget, CALL_TOKENS, CHAT, MESSAGES, TOOL_TOKENS};
use super::scenario::result;
use super::{AttackClass, AttackResult, Attacker, EscapeError};
use crate::gateway::meter::Allowance;
use crate::usage::Usd;

/// The budget of each attack on it, in tokens, and how many calls try to exceed it at once.
const BUDGET: u64 = 5000;
const PARALLEL: usize = 12;
/// A budget in dollars, and the tokens that it is enough for.
const COST_BUDGET: f64 = 0.02;
const COST_BUDGET_TOKENS: u64 = 20_000;
/// How much dearer the dearest tier of a service is.
const TIER_FACTOR: u64 = 3;

impl BrokerTarget<'_> {
    /// Tries each way to exceed the budget, and removes the budget afterwards.
    pub(super) async fn attack_budget(
        &self,
        attacker: &Attacker<'_>,
    ) -> Result<Vec<AttackResult>, EscapeError> {
        let mut results = Vec::new();
        for (path, form) in budget_attacks() {
            results.push(self.overspend(attacker, path, &form).await?);
        }
        self.meter.allow(Allowance::default());
        Ok(results)
    }

    /// Makes calls in parallel until the budget is used up. The service must not have worked for more.
    async fn overspend(
        &self,
        attacker: &Attacker<'_>,
        path: &str,
        form: &BudgetAttack,
    ) -> Result<AttackResult, EscapeError> {
        let spent = self.meter.spent();
        self.meter.allow(if form.by_cost {
            let limit = Usd::from_dollars(COST_BUDGET).unwrap_or(Usd::ZERO);
            Allowance {
                cost: Some(spent.cost + limit),
                tokens: None,
            }
        } else {
            Allowance {
                cost: None,
                tokens: Some(spent.tokens.total() + BUDGET),
            }
        });
        self.service.take_requests();
        let probe = self.usual_call(path, &form.added);
        try_join_all((0..PARALLEL).map(|_| attacker.run(&probe))).await?;
        let served = self.service.take_requests().len() as u64;
        let budget = if form.by_cost { COST_BUDGET_TOKENS } else { BUDGET };
        let used = served * form.each;
        Ok(result(
            AttackClass::Budgets,
            form.name,
            used <= budget + form.excess,
            format!("{served} of {PARALLEL} calls were forwarded, {used} tokens of {budget}"),
        ))
    }
}

/// Calls that try to exceed the budget.
struct BudgetAttack {
    name: &'static str,
    added: Value,
    /// What one call uses, in tokens of the usual price.
    each: u64,
    /// By how much a last call may exceed the budget.
    excess: u64,
    /// Whether the budget is a cost.
    by_cost: bool,
}

fn budget_attacks() -> [(&'static str, BudgetAttack); 6] {
    let attack = |name, added| BudgetAttack {
        name,
        added,
        each: CALL_TOKENS,
        excess: 0,
        by_cost: false,
    };
    let tools = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    [
        (
            MESSAGES,
            attack("parallel calls do not exceed the budget", json!({})),
        ),
        (
            MESSAGES,
            attack("calls without a reported usage count", json!({"model": "silent"})),
        ),
        (
            MESSAGES,
            attack(
                "streams that end early count",
                json!({"model": "cut", "stream": true}),
            ),
        ),
        (
            MESSAGES,
            BudgetAttack {
                each: 1_000_000,
                ..attack(
                    "a call that may exceed the budget is refused",
                    json!({"max_tokens": 1_000_000}),
                )
            },
        ),
        (
            MESSAGES,
            BudgetAttack {
                each: TOOL_TOKENS,
                excess: TOOL_TOKENS,
                ..attack(
                    "calls with a tool of the service are made one by one",
                    json!({"model": "tools", "tools": tools}),
                )
            },
        ),
        (
            CHAT,
            BudgetAttack {
                each: TIER_FACTOR * CALL_TOKENS,
                by_cost: true,
                ..attack(
                    "a dearer tier counts as such",
                    json!({"model": "tiered", "service_tier": "priority"}),
                )
            },
        ),
    ]
}
