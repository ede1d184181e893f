//! What the view says about runs: in a row of the list, and on the overview of one.

use jiff::Timestamp;

use super::client::{RunRow, WatchedBudget, WatchedRun};
use super::text_view::{Tone, ToneLine};

/// The groups of the list, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunGroup {
    NeedsYou,
    Running,
    Queued,
    Done,
}

impl RunGroup {
    /// The group of a run, as on the dashboard. A run that waits in the queue has no other state yet.
    pub(super) fn of(state: &str, queue: Option<&str>) -> Self {
        match (state, queue) {
            ("running", _) | (_, Some("running")) => Self::Running,
            (_, Some("queued")) => Self::Queued,
            ("done" | "stopped", _) => Self::Done,
            _ => Self::NeedsYou,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::NeedsYou => "Needs you",
            Self::Running => "Running",
            Self::Queued => "Queued",
            Self::Done => "Done",
        }
    }

    /// A mark for those who see no colours.
    pub(super) fn tone(self) -> Tone {
        match self {
            Self::NeedsYou => Tone::Notice,
            Self::Running => Tone::Good,
            Self::Queued | Self::Done => Tone::Plain,
        }
    }
}

/// What a row shows that the list of runs does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RunExtras {
    pub(super) loop_score: Option<f64>,
    /// The share of the budget that is used most, from 0 to 1.
    pub(super) budget: Option<f64>,
}

/// The state of a run, as a row shows it.
pub(super) fn state_name(row: &RunRow) -> &str {
    match RunGroup::of(&row.state, row.queue.as_deref()) {
        RunGroup::Queued => "queued",
        _ => &row.state,
    }
}

/// The columns of the list besides the title: their heads, and how wide each is.
pub(super) const COLUMNS: [(&str, usize); 8] = [
    ("RUN", 10),
    ("STATE", 12),
    ("ITER", 5),
    ("TICKED", 7),
    ("LOOP", 5),
    ("BUDGET", 7),
    ("COST", 9),
    ("ACTIVE", 7),
];

/// Which columns a terminal of this width has room for.
pub(super) fn columns_for(width: usize) -> &'static [usize] {
    match width {
        76.. => &[0, 1, 2, 3, 4, 5, 6, 7],
        56.. => &[0, 1, 2, 5, 7],
        _ => &[0, 1, 2],
    }
}

/// The cells of a row, in the order of [`COLUMNS`].
pub(super) fn cells(row: &RunRow, extras: &RunExtras, now: Timestamp) -> [String; 8] {
    [
        row.run.clone(),
        state_name(row).to_owned(),
        row.iterations.to_string(),
        format!("{}/{}", row.ticked, row.checkboxes),
        extras
            .loop_score
            .map_or_else(|| "-".to_owned(), |score| format!("{score:.2}")),
        extras.budget.map_or_else(|| "-".to_owned(), percent),
        cost(row.cost_usd, row.unpriced_calls),
        ago(&row.updated, now),
    ]
}

pub(super) fn cost(dollars: f64, unpriced: u64) -> String {
    if unpriced > 0 {
        "unknown".to_owned()
    } else {
        format!("${dollars:.4}")
    }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// How long ago something happened, in its largest unit.
fn ago(at: &str, now: Timestamp) -> String {
    let Ok(at) = at.parse::<Timestamp>() else {
        return "-".to_owned();
    };
    let seconds = now.duration_since(at).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// What the overview of a run shows: its state, and its budgets or why they are unknown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunOverview {
    pub(super) details: WatchedRun,
    pub(super) budgets: Result<Vec<WatchedBudget>, String>,
}

impl RunOverview {
    pub(super) fn extras(&self) -> RunExtras {
        let shares = self.budgets.iter().flatten().map(WatchedBudget::share);
        RunExtras {
            loop_score: self.details.loop_score,
            budget: shares.reduce(f64::max),
        }
    }

    /// The lines of the overview in this many columns.
    pub(super) fn lines(&self, width: usize) -> Vec<ToneLine> {
        let run = &self.details;
        let mut lines = vec![self.state_line()];
        let fact = |name: &str, value: &str| ToneLine::new(Tone::Plain, format!("{name:<12} {value}"));
        lines.extend(run.reason.iter().map(|reason| fact("reason", reason)));
        lines.push(fact("branch", &run.branch));
        lines.push(fact("repository", &run.repository));
        lines.extend(run.pull_request.iter().map(|place| fact("pull request", place)));
        let score = run.loop_score.map_or_else(
            || "-".to_owned(),
            |score| format!("{score:.2} (1 is going in circles)"),
        );
        lines.push(fact("loop score", &score));
        lines.push(fact(
            "used",
            &format!(
                "{}, {} tokens, {}",
                cost(run.cost_usd, run.unpriced_calls),
                run.tokens,
                duration(run.worked_seconds)
            ),
        ));
        lines.extend(section("Budgets"));
        match &self.budgets {
            Ok(budgets) => lines.extend(budgets.iter().map(|budget| budget_line(budget, width))),
            Err(reason) => lines.push(ToneLine::new(Tone::Notice, format!("unknown: {reason}"))),
        }
        lines.extend(section("Checkboxes"));
        lines.extend(run.checkboxes.iter().map(|one| {
            let (tone, tick) = if one.ticked {
                (Tone::Good, 'x')
            } else {
                (Tone::Plain, ' ')
            };
            ToneLine::new(tone, format!("[{tick}] {} {}", one.id, one.text))
        }));
        if !run.interventions.is_empty() {
            lines.extend(section("Requests"));
        }
        lines.extend(run.interventions.iter().rev().map(|one| {
            let tone = if one.state == "refused" {
                Tone::Bad
            } else {
                Tone::Plain
            };
            let reason = one
                .reason
                .as_ref()
                .map_or_else(String::new, |reason| format!(": {reason}"));
            ToneLine::new(
                tone,
                format!("{:<8} {} ({}){reason}", one.state, one.what, one.by),
            )
        }));
        lines
    }

    fn state_line(&self) -> ToneLine {
        let run = &self.details;
        let group = RunGroup::of(&run.state, run.queue.as_deref());
        let state = if group == RunGroup::Queued {
            "queued"
        } else {
            &run.state
        };
        let ticked = run.checkboxes.iter().filter(|one| one.ticked).count();
        let boxes = run.checkboxes.len();
        let iterations = crate::text::counted(run.iterations, "iteration");
        ToneLine::new(
            group.tone(),
            format!("{state}, {iterations}, {ticked} of {boxes} checkboxes"),
        )
    }
}

fn section(title: &str) -> [ToneLine; 2] {
    [
        ToneLine::new(Tone::Plain, ""),
        ToneLine::new(Tone::Heading, title),
    ]
}

fn budget_line(budget: &WatchedBudget, width: usize) -> ToneLine {
    let share = budget.share();
    let tone = match share {
        0.95.. => Tone::Bad,
        0.8.. => Tone::Notice,
        _ => Tone::Plain,
    };
    let name = match budget.name.as_str() {
        "max_iterations" => "iterations",
        "max_wall_time_minutes" => "time",
        "max_cost_usd_estimate" => "cost",
        "max_tokens_total" => "tokens",
        "max_rate_limit_wait_minutes" => "waiting",
        other => other,
    };
    let bar = bar(share, if width >= 60 { 20 } else { 8 });
    let (used, limit) = (
        amount(budget.used, &budget.unit),
        amount(budget.limit, &budget.unit),
    );
    ToneLine::new(
        tone,
        format!("{name:<10} {bar} {:>4} {used} of {limit}", percent(share)),
    )
}

fn bar(share: f64, columns: usize) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "from 0 to a few columns"
    )]
    let full = ((share * columns as f64).round() as usize).min(columns);
    format!("{}{}", "█".repeat(full), "░".repeat(columns - full))
}

fn amount(value: f64, unit: &str) -> String {
    match unit {
        "seconds" => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a duration is not negative, and the cast stops at the limits"
            )]
            let seconds = value as u64;
            duration(seconds)
        }
        "usd" => format!("${value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("running", None, RunGroup::Running)]
    #[case("interrupted", Some("queued"), RunGroup::Queued)]
    #[case("interrupted", Some("running"), RunGroup::Running)]
    #[case("interrupted", None, RunGroup::NeedsYou)]
    #[case("paused", Some("needs_person"), RunGroup::NeedsYou)]
    #[case("broken", None, RunGroup::NeedsYou)]
    #[case("stopped", None, RunGroup::Done)]
    #[case("done", Some("finished"), RunGroup::Done)]
    fn a_run_is_in_the_group_of_what_it_needs(
        #[case] state: &str,
        #[case] queue: Option<&str>,
        #[case] group: RunGroup,
    ) {
        assert_eq!(RunGroup::of(state, queue), group);
    }

    #[test]
    fn times_and_amounts_are_short() {
        let now: Timestamp = "2026-11-18T10:00:00Z".parse().unwrap();
        let shown = [
            "2026-11-18T09:59:30Z",
            "2026-11-18T09:00:00Z",
            "2026-11-10T10:00:00Z",
            "?",
        ];
        assert_eq!(shown.map(|at| ago(at, now)), ["30s", "1h", "8d", "-"]);
        assert_eq!(ago("2026-11-18T10:00:05Z", now), "0s", "a clock that is ahead");
        assert_eq!(
            (duration(59), duration(61), duration(7300)),
            ("59s".into(), "1m 1s".into(), "2h 1m".into())
        );
        assert_eq!(
            (amount(90.0, "seconds"), amount(1.5, "usd")),
            ("1m 30s".to_owned(), "$1.50".to_owned())
        );
    }

    #[test]
    fn a_bar_is_as_full_as_its_budget_and_says_so_in_words() {
        let budget = WatchedBudget {
            name: "max_iterations".to_owned(),
            unit: "iterations".to_owned(),
            used: 3.0,
            limit: 6.0,
        };
        assert_eq!(budget_line(&budget, 40).text, "iterations ████░░░░  50% 3 of 6");
        let full = WatchedBudget { used: 6.0, ..budget };
        assert_eq!(
            budget_line(&full, 40),
            ToneLine::new(Tone::Bad, "iterations ████████ 100% 6 of 6")
        );
    }
}
