//! Samples, and the line that a figure is printed as. What all benchmarks share is below this module: `results` keeps the
//! samples as JSON, `quick` says how often to measure, `curve` is a cost at several sizes.

#[path = "curve.rs"]
pub(crate) mod curve;
#[path = "quick.rs"]
pub(crate) mod quick;
#[path = "results.rs"]
pub(crate) mod results;

use std::fmt;
use std::time::Duration;

/// The share of samples below the median, and below the 95th and 99th percentile: what a figure can be.
pub(crate) const MEDIAN: f64 = 0.5;
pub(crate) const P95: f64 = 0.95;
pub(crate) const P99: f64 = 0.99;

/// What was measured, many times, in one unit.
#[derive(Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn milliseconds(durations: impl IntoIterator<Item = Duration>) -> Self {
        durations
            .into_iter()
            .map(|one| one.as_secs_f64() * 1000.0)
            .collect()
    }

    /// Of what was measured once, or counted.
    pub(crate) fn one(value: f64) -> Self {
        Self(vec![value])
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(MEDIAN)
    }

    pub(crate) fn p95(&self) -> f64 {
        self.quantile(P95)
    }

    /// The samples of one stretch, in the order they were taken.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self(self.0[range].to_vec())
    }

    /// Each sample in another unit, or compared with something.
    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        self.0.iter().copied().map(change).collect()
    }

    /// How much more each sample is than the median of others. Its median is the difference of the medians.
    pub(crate) fn added_to(&self, others: &Self) -> Self {
        let base = others.median();
        self.map(|one| one - base)
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
    /// Which quantile of the samples the figure is, on both sides.
    pub(crate) at: f64,
    pub(crate) ours: Samples,
    pub(crate) peer: Option<PeerSamples>,
    pub(crate) target: Target,
}

/// What ours is compared with.
pub(crate) struct PeerSamples {
    /// The program or command, as a user knows it.
    pub(crate) name: &'static str,
    pub(crate) samples: Samples,
}

impl PeerSamples {
    pub(crate) fn new(name: &'static str, samples: &Samples) -> Self {
        Self {
            name,
            samples: samples.clone(),
        }
    }
}

/// What a figure must reach.
pub(crate) enum Target {
    /// At most so many times the peer's.
    Ratio(f64),
    /// At most so much.
    Most(f64),
}

impl Figure {
    fn value(&self) -> f64 {
        self.ours.quantile(self.at)
    }

    fn peers_value(&self) -> Option<f64> {
        Some(self.peer.as_ref()?.samples.quantile(self.at))
    }

    fn ratio(&self) -> Option<f64> {
        self.peers_value().map(|peer| self.value() / peer)
    }

    fn is_reached(&self) -> bool {
        match self.target {
            Target::Ratio(most) => self.ratio().is_some_and(|ratio| ratio <= most),
            Target::Most(most) => self.value() <= most,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, unit, .. } = self;
        let (ours, suffix) = (self.value(), results::suffix());
        let peer = self
            .peers_value()
            .map_or("-".to_owned(), |peer| format!("{peer:.1}{unit}"));
        let ratio = self.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
        let target = match self.target {
            Target::Ratio(most) => format!("ratio<={most}"),
            Target::Most(most) => format!("<={most}{unit}"),
        };
        let verdict = if self.is_reached() { "ok" } else { "short" };
        write!(
            f,
            "bench {name}{suffix} ours={ours:.1}{unit} peer={peer} ratio={ratio} target={target} {verdict}"
        )
    }
}
