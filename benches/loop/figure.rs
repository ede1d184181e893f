//! Samples, and the line that a figure is printed as.

use std::fmt;
use std::time::Duration;

/// What was measured, many times, in one unit.
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn milliseconds(durations: impl IntoIterator<Item = Duration>) -> Self {
        durations
            .into_iter()
            .map(|one| one.as_secs_f64() * 1000.0)
            .collect()
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn p95(&self) -> f64 {
        self.quantile(0.95)
    }

    /// The samples of one stretch, in the order they were taken.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self(self.0[range].to_vec())
    }

    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a short list"
        )]
        let place = ((sorted.len() - 1) as f64 * share).round() as usize;
        sorted[place]
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (best, median, p95) = (self.quantile(0.0), self.median(), self.p95());
        let count = self.0.len();
        write!(
            f,
            "best {best:.1}, median {median:.1}, p95 {p95:.1} ({count} samples)"
        )
    }
}

/// One figure and what it must reach.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) peer: Option<f64>,
    pub(crate) target: Target,
}

/// What a figure must reach.
pub(crate) enum Target {
    /// At most so many times the peer's.
    Ratio(f64),
    /// At most so much.
    Most(f64),
}

impl Figure {
    fn ratio(&self) -> Option<f64> {
        self.peer.map(|peer| self.ours / peer)
    }

    fn is_reached(&self) -> bool {
        match self.target {
            Target::Ratio(most) => self.ratio().is_some_and(|ratio| ratio <= most),
            Target::Most(most) => self.ours <= most,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, unit, ours, .. } = self;
        let peer = self
            .peer
            .map_or("-".to_owned(), |peer| format!("{peer:.1}{unit}"));
        let ratio = self.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
        let target = match self.target {
            Target::Ratio(most) => format!("ratio<={most}"),
            Target::Most(most) => format!("<={most}{unit}"),
        };
        let verdict = if self.is_reached() { "ok" } else { "short" };
        write!(
            f,
            "bench {name} ours={ours:.1}{unit} peer={peer} ratio={ratio} target={target} {verdict}"
        )
    }
}
