//! Logarithmic axes and the numbers beside them.

/// A logarithmic axis between two powers of ten, drawn from one coordinate to another.
pub(super) struct LogAxis {
    first: i32,
    last: i32,
    from: f64,
    to: f64,
}

impl LogAxis {
    /// The decades that hold all positive values, between these coordinates.
    pub(super) fn around(values: impl Iterator<Item = f64>, [from, to]: [f64; 2]) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let (mut first, mut last) = (i32::MAX, i32::MIN);
        for value in positive {
            first = first.min(decade(value.log10().floor()));
            last = last.max(decade(value.log10().ceil()));
        }
        if first > last {
            (first, last) = (0, 1);
        }
        Self {
            first,
            last: last.max(first + 1),
            from,
            to,
        }
    }

    /// The coordinate of a value. One that is not positive has no place on the axis and gets its first coordinate.
    pub(super) fn place(&self, value: f64) -> f64 {
        let decades = f64::from(self.last - self.first);
        let share = if value > 0.0 {
            (value.log10() - f64::from(self.first)) / decades
        } else {
            0.0
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The powers of ten; between few of them also two and five times each.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.last - self.first <= 2 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let powers = (self.first..=self.last).map(|power| 10_f64.powi(power));
        let end = 10_f64.powi(self.last) * 1.01;
        powers
            .flat_map(|power| steps.iter().map(move |step| step * power))
            .filter(|value| *value <= end)
            .collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "decades of a finite number are few"
)]
fn decade(power: f64) -> i32 {
    power as i32
}

/// A number with three significant digits, without zeros at its end.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size => 2 - decade(size.log10().floor()),
    };
    let digits = usize::try_from(digits).unwrap_or(0).min(9);
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [f64; 2] = [240.0, 640.0];

    #[test]
    fn the_axis_has_one_place_for_each_decade() {
        let axis = LogAxis::around([0.5, 300.0].into_iter(), ENDS);
        assert_eq!(axis.ticks(), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        let step = axis.place(10.0) - axis.place(1.0);
        assert!((axis.place(100.0) - axis.place(10.0) - step).abs() < 1e-9);
        assert!((axis.place(1000.0) - 640.0).abs() < 1e-9);
    }

    #[test]
    fn a_value_that_is_not_positive_is_at_the_first_end() {
        let axis = LogAxis::around([0.0, -3.0].into_iter(), ENDS);
        assert!((axis.place(0.0) - 240.0).abs() < 1e-9);
        assert!((axis.place(-3.0) - 240.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.001_234, 1.0, 2.345, 12.34, 7452.9, -2.6].map(number);
        assert_eq!(shown, ["0", "0.00123", "1", "2.35", "12.3", "7453", "-2.6"]);
    }
}
