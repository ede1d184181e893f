//! Dot-range charts: for each figure a dot at the median on a line from the 5th to the 95th percentile, on a logarithmic
//! axis, with the peer in the row below.

use super::axis::{LogAxis, number};
use super::svg::SvgText;

/// Where things are, in units of the chart: names on the left, the axis in the middle, numbers on the right.
const WIDTH: f64 = 820.0;
const AXIS_LEFT: f64 = 240.0;
const AXIS_RIGHT: f64 = 640.0;
const TOP: f64 = 56.0;
const ROW: f64 = 18.0;
const GAP: f64 = 10.0;
/// For the labels of the axis, below the rows.
const BOTTOM: f64 = 30.0;

/// The colours, for light and dark pages. The file is shown as an image, so it has its own style.
const STYLE: &str = "<style>
svg { background: #ffffff; font: 12px system-ui, sans-serif; }
text { fill: #1f2328; }
.title { font-size: 14px; font-weight: 600; }
.quiet { fill: #656d76; }
.middle { text-anchor: middle; fill: #656d76; }
.grid { stroke: #d8dee4; }
.ours { fill: #0969da; stroke: #0969da; stroke-width: 3; }
.peer { fill: #8c959f; stroke: #8c959f; stroke-width: 3; }
.target { stroke: #1a7f37; stroke-width: 2; }
.missed { stroke: #cf222e; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; }
text { fill: #e6edf3; }
.quiet, .middle { fill: #8d96a0; }
.grid { stroke: #30363d; }
.ours { fill: #4493f8; stroke: #4493f8; }
.peer { fill: #6e7681; stroke: #6e7681; }
.target { stroke: #3fb950; }
.missed { stroke: #f85149; }
}
</style>
";

/// One row: what was measured for one side of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct DotRange {
    /// The name of the side.
    pub label: String,
    /// The 5th percentile.
    pub p5: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// How many samples there are.
    pub count: usize,
}

/// A figure: our row, and below it that of the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct DotRangeGroup {
    /// Our samples, with the name of the figure.
    pub ours: DotRange,
    /// Those of the peer.
    pub peer: Option<DotRange>,
    /// The most that is allowed, in the unit of the chart.
    pub target: f64,
    /// Whether the figure is within its target.
    pub met: bool,
}

/// A chart of figures that share a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct DotRangeChart {
    /// What the figures are about.
    pub title: String,
    /// Their unit; empty for plain numbers.
    pub unit: String,
    /// The figures, from top to bottom.
    pub groups: Vec<DotRangeGroup>,
}

/// Draws the chart as an SVG file. A value that is not positive has no place on a logarithmic axis and is drawn at its left
/// end; the number beside the row is exact.
#[must_use]
pub fn dot_range_chart(chart: &DotRangeChart) -> String {
    let axis = LogAxis::around(
        chart.groups.iter().flat_map(group_values),
        [AXIS_LEFT, AXIS_RIGHT],
    );
    let bottom = TOP + chart.groups.iter().map(group_height).sum::<f64>();
    let height = bottom + BOTTOM;
    let size = format!("xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\"");
    let mut svg = SvgText::open(WIDTH, height, &size, &chart.title);
    svg.raw("\n");
    svg.raw(STYLE);
    svg.text("title", [12.0, 22.0], &chart.title);
    let unit = if chart.unit.is_empty() {
        "number"
    } else {
        &chart.unit
    };
    let caption = format!(
        "{unit}, logarithmic; line: 5th to 95th percentile, dot: median, upright mark: target (red: missed), n: samples"
    );
    svg.text("quiet", [12.0, 40.0], &caption);
    for value in axis.ticks() {
        let x = axis.place(value);
        svg.line("grid", [x, TOP], [x, bottom]);
        svg.text("middle", [x, bottom + 18.0], &number(value));
    }
    let mut y = TOP + ROW / 2.0;
    for group in &chart.groups {
        row(&mut svg, &axis, &group.ours, Side::Ours, y);
        let (x, class) = (
            axis.place(group.target),
            if group.met { "target" } else { "missed" },
        );
        svg.line(class, [x, y - 7.0], [x, y + 7.0]);
        if let Some(peer) = &group.peer {
            row(&mut svg, &axis, peer, Side::Peer, y + ROW);
        }
        y += group_height(group);
    }
    svg.close() + "\n"
}

#[derive(Clone, Copy)]
enum Side {
    Ours,
    Peer,
}

fn row(svg: &mut SvgText, axis: &LogAxis, range: &DotRange, side: Side, y: f64) {
    let (class, text, indent) = match side {
        Side::Ours => ("ours", "", 12.0),
        Side::Peer => ("peer", "quiet", 24.0),
    };
    svg.text(text, [indent, y + 4.0], &range.label);
    svg.line(class, [axis.place(range.p5), y], [axis.place(range.p95), y]);
    svg.circle(class, [axis.place(range.p50), y], 4.0);
    let numbers = format!("{} (n {})", number(range.p50), range.count);
    svg.text(text, [AXIS_RIGHT + 16.0, y + 4.0], &numbers);
}

fn group_height(group: &DotRangeGroup) -> f64 {
    GAP + ROW * if group.peer.is_some() { 2.0 } else { 1.0 }
}

fn group_values(group: &DotRangeGroup) -> Vec<f64> {
    let sides = [Some(&group.ours), group.peer.as_ref()];
    let mut values: Vec<f64> = sides
        .into_iter()
        .flatten()
        .flat_map(|range| [range.p5, range.p50, range.p95])
        .collect();
    values.push(group.target);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(label: &str, p50: f64) -> DotRange {
        DotRange {
            label: label.to_owned(),
            p5: p50 / 2.0,
            p50,
            p95: p50 * 2.0,
            count: 40,
        }
    }

    fn chart(groups: Vec<DotRangeGroup>) -> String {
        dot_range_chart(&DotRangeChart {
            title: "exec <1>".to_owned(),
            unit: "ms".to_owned(),
            groups,
        })
    }

    #[test]
    fn both_sides_and_the_target_are_drawn() {
        let group = DotRangeGroup {
            ours: range("exec", 1.0),
            peer: Some(range("docker exec", 100.0)),
            target: 2.0,
            met: true,
        };
        let svg = chart(vec![group]);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("class=\"target\"").count(), 1);
        assert!(
            svg.contains("exec &lt;1&gt;") && svg.contains("docker exec"),
            "{svg}"
        );
        assert!(svg.contains("100 (n 40)"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
    }

    #[test]
    fn a_chart_without_figures_is_drawn() {
        assert!(!chart(Vec::new()).contains("NaN"));
    }
}
