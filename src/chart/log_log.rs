//! Log-log charts: how costs grow with a size. A power law is a straight line, and its exponent the slope.

use super::axis::{LogAxis, number};
use super::svg::SvgText;

/// Where things are, in units of the chart: the plot on the left, the names of the series on the right.
const WIDTH: f64 = 820.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 470.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 336.0;
const HEIGHT: f64 = 380.0;
const LEGEND: f64 = 500.0;
const ROW: f64 = 20.0;

/// How many series have a colour of their own.
const COLOURS: usize = 6;

/// The colours, for light and dark pages. The file is shown as an image, so it has its own style.
const STYLE: &str = "<style>
svg { background: #ffffff; font: 12px system-ui, sans-serif; }
text { fill: #1f2328; }
.title { font-size: 14px; font-weight: 600; }
.quiet { fill: #656d76; }
.middle { text-anchor: middle; fill: #656d76; }
.end { text-anchor: end; fill: #656d76; }
.grid { stroke: #d8dee4; }
.s0 { fill: #0969da; stroke: #0969da; stroke-width: 2; }
.s1 { fill: #bc4c00; stroke: #bc4c00; stroke-width: 2; }
.s2 { fill: #1a7f37; stroke: #1a7f37; stroke-width: 2; }
.s3 { fill: #8250df; stroke: #8250df; stroke-width: 2; }
.s4 { fill: #bf3989; stroke: #bf3989; stroke-width: 2; }
.s5 { fill: #6e7781; stroke: #6e7781; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; }
text { fill: #e6edf3; }
.quiet, .middle, .end { fill: #8d96a0; }
.grid { stroke: #30363d; }
}
</style>
";

/// What was measured at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogLogPoint {
    /// The size.
    pub size: f64,
    /// The 5th percentile of the cost.
    pub p5: f64,
    /// Its median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
}

/// A cost at several sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLogSeries {
    /// Its name, beside the plot.
    pub label: String,
    /// The sizes, in ascending order.
    pub points: Vec<LogLogPoint>,
}

/// A chart of costs that share a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLogChart {
    /// What grows.
    pub title: String,
    /// The size, below the plot.
    pub x_label: String,
    /// The unit of the costs.
    pub y_label: String,
    /// The costs.
    pub series: Vec<LogLogSeries>,
}

/// Draws the chart as an SVG file: a dot at each median, with a line from the 5th to the 95th percentile. A value that is not
/// positive has no place on a logarithmic axis and is drawn at its lower end.
#[must_use]
pub fn log_log_chart(chart: &LogLogChart) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let across = LogAxis::around(points().map(|point| point.size), [LEFT, RIGHT]);
    let costs = points().flat_map(|point| [point.p5, point.p50, point.p95]);
    let up = LogAxis::around(costs, [BOTTOM, TOP]);
    let size = format!("xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\"");
    let mut svg = SvgText::open(WIDTH, HEIGHT, &size, &chart.title);
    svg.raw("\n");
    svg.raw(STYLE);
    svg.text("title", [12.0, 22.0], &chart.title);
    let caption = format!(
        "{}, both axes logarithmic; dot: median, upright line: 5th to 95th percentile",
        chart.y_label
    );
    svg.text("quiet", [12.0, 40.0], &caption);
    for value in across.ticks() {
        let x = across.place(value);
        svg.line("grid", [x, TOP], [x, BOTTOM]);
        svg.text("middle", [x, BOTTOM + 18.0], &grouped(value));
    }
    for value in up.ticks() {
        let y = up.place(value);
        svg.line("grid", [LEFT, y], [RIGHT, y]);
        svg.text("end", [LEFT - 8.0, y + 4.0], &grouped(value));
    }
    svg.text(
        "middle",
        [f64::midpoint(LEFT, RIGHT), BOTTOM + 36.0],
        &chart.x_label,
    );
    let mut legend = TOP + ROW / 2.0;
    for (index, series) in chart.series.iter().enumerate() {
        let class = format!("s{}", index % COLOURS);
        draw(&mut svg, &class, series, [&across, &up]);
        svg.circle(&class, [LEGEND, legend - 4.0], 4.0);
        svg.text("", [LEGEND + 12.0, legend], &series.label);
        legend += ROW;
    }
    svg.close() + "\n"
}

fn draw(svg: &mut SvgText, class: &str, series: &LogLogSeries, [across, up]: [&LogAxis; 2]) {
    let at = |point: &LogLogPoint, cost: f64| [across.place(point.size), up.place(cost)];
    for pair in series.points.windows(2) {
        svg.line(class, at(&pair[0], pair[0].p50), at(&pair[1], pair[1].p50));
    }
    for point in &series.points {
        svg.line(class, at(point, point.p5), at(point, point.p95));
        svg.circle(class, at(point, point.p50), 3.0);
    }
}

/// A number of an axis, with commas between thousands.
fn grouped(value: f64) -> String {
    let text = number(value);
    if text.contains('.') {
        return text;
    }
    let digits = text.len();
    let mut grouped = String::new();
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (digits - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(costs: &[(f64, f64)]) -> String {
        let points = costs.iter().map(|(size, p50)| LogLogPoint {
            size: *size,
            p5: p50 / 2.0,
            p50: *p50,
            p95: p50 * 2.0,
        });
        log_log_chart(&LogLogChart {
            title: "list <runs>".to_owned(),
            x_label: "runs".to_owned(),
            y_label: "ms".to_owned(),
            series: vec![LogLogSeries {
                label: "first page".to_owned(),
                points: points.collect(),
            }],
        })
    }

    #[test]
    fn a_power_law_is_a_straight_line() {
        let svg = chart(&[(10.0, 1.0), (1000.0, 10.0), (100_000.0, 100.0)]);
        let value = |line: &str, name: &str| -> f64 {
            let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let dots: Vec<[f64; 2]> = svg
            .lines()
            .filter(|line| line.starts_with("<circle") && line.contains("r=\"3\""))
            .map(|line| [value(line, "cx"), value(line, "cy")])
            .collect();
        let [first, middle, last] = dots[..] else {
            panic!("{svg}");
        };
        let slope = |from: [f64; 2], to: [f64; 2]| (to[1] - from[1]) / (to[0] - from[0]);
        assert!((slope(first, middle) - slope(middle, last)).abs() < 0.01, "{svg}");
        assert!(last[1] < first[1], "higher costs are further up: {svg}");
        assert!(
            svg.contains(">100,000<") && svg.contains("list &lt;runs&gt;"),
            "{svg}"
        );
    }

    #[test]
    fn a_chart_without_points_is_drawn() {
        assert!(!chart(&[]).contains("NaN"));
    }
}
