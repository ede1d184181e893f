//! Bar charts without inline style, for pages that forbid it.

use super::svg::SvgText;

/// The size of a chart, in units of its own.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 90.0;

/// How many bars a chart has at most. More values share bars.
const MOST_BARS: usize = 150;

/// A chart with one bar for each value, or for each few of them if there are many. A bar of several shows the highest.
/// The page gives it its colours by the class `chart`.
#[must_use]
pub fn bar_chart(title: &str, values: &[f64], unit: &str) -> String {
    let per_bar = values.len().div_ceil(MOST_BARS).max(1);
    let bars: Vec<(usize, f64)> = values
        .chunks(per_bar)
        .enumerate()
        .map(|(index, chunk)| (index * per_bar + 1, chunk.iter().copied().fold(0.0, f64::max)))
        .collect();
    let highest = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let mut svg = SvgText::open(
        WIDTH,
        HEIGHT,
        "class=\"chart\" preserveAspectRatio=\"none\"",
        &format!("{title}: highest {unit}{highest:.2}"),
    );
    let mut left = 0.0;
    let slot = WIDTH / f64::from(u32::try_from(bars.len().max(1)).unwrap_or(u32::MAX));
    for (first, value) in bars {
        let share = if highest > 0.0 { value / highest } else { 0.0 };
        let (height, width) = ((share * HEIGHT).max(1.0), (slot * 0.8).min(24.0));
        let title = format!("{first}: {unit}{value:.2}");
        svg.rect([left, HEIGHT - height], [width, height], &title);
        left += slot;
    }
    svg.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_no_more_bars_than_fit() {
        let values: Vec<f64> = (0..5000).map(f64::from).collect();
        let svg = bar_chart("Cost", &values, "$");
        let bars = svg.matches("<rect").count();
        assert!(bars <= MOST_BARS && bars > MOST_BARS / 2, "{bars}");
        assert!(svg.contains("$4999.00</title>"), "{svg}");
        assert_eq!(bar_chart("Cost", &[], "$").matches("<rect").count(), 0);
    }
}
