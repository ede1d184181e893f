//! How a cost grows with a size: samples at several sizes, and the power law through their medians.

use std::fmt;

use super::Samples;

/// A cost at several sizes.
pub(crate) struct Curve {
    pub(crate) name: String,
    /// What grows, for people.
    pub(crate) axis: &'static str,
    /// What is measured, for people.
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) points: Vec<CurvePoint>,
}

/// What was measured at one size.
pub(crate) struct CurvePoint {
    pub(crate) size: f64,
    pub(crate) samples: Samples,
}

/// A power law: a cost grows with the size to the power of the exponent.
pub(crate) struct PowerLaw {
    pub(crate) exponent: f64,
    /// The share of the variance of log(cost) that the law explains. Of a cost that does not grow it says nothing.
    pub(crate) r_squared: f64,
}

impl Curve {
    pub(crate) fn new(
        name: impl Into<String>,
        axis: &'static str,
        what: &'static str,
        unit: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            axis,
            what,
            unit,
            points: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, size: u64, samples: Samples) {
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
        let size = size as f64;
        self.points.push(CurvePoint { size, samples });
    }

    /// By least squares of log(median) on log(size). `None` for fewer than three sizes, or a median that is not positive.
    pub(crate) fn fit(&self) -> Option<PowerLaw> {
        let points = self.points.iter();
        let logs: Vec<[f64; 2]> = points
            .map(|point| [point.size.ln(), point.samples.median().ln()])
            .collect();
        if logs.len() < 3 || logs.iter().flatten().any(|value| !value.is_finite()) {
            return None;
        }
        let mean = |index: usize| logs.iter().map(|log| log[index]).sum::<f64>() / count(&logs);
        let means = [mean(0), mean(1)];
        let product = |a: usize, b: usize| {
            let products = logs.iter().map(|log| (log[a] - means[a]) * (log[b] - means[b]));
            products.sum::<f64>()
        };
        let (xx, xy, yy) = (product(0, 0), product(0, 1), product(1, 1));
        Some(PowerLaw {
            exponent: xy / xx,
            r_squared: if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 },
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a short list")]
fn count<T>(list: &[T]) -> f64 {
    list.len() as f64
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "curve {} by {}:", self.name, self.axis)?;
        for point in &self.points {
            let (median, p95) = (point.samples.median(), point.samples.p95());
            write!(f, " {}: {median:.3} (p95 {p95:.3}),", point.size)?;
        }
        match self.fit() {
            Some(law) => write!(
                f,
                " {}; exponent {:.2}, R2 {:.2}",
                self.unit, law.exponent, law.r_squared
            ),
            None => write!(f, " {}", self.unit),
        }
    }
}
