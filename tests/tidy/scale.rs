//! The tables and plots of docs/scale.md are made from the curves below benches/results.

use std::fmt::Write as _;

use ralph::chart::{LogLogChart, LogLogPoint, LogLogSeries, log_log_chart};
use serde::Deserialize;
use serde_json::json;

use crate::benchmarks::{check_charts, check_page, circumstances, fit_results};

const PAGE: &str = "docs/scale.md";
const BEGIN: &str = "<!-- Generated from benches/results/scale.json; `RALPH_UPDATE_REFERENCE=1 cargo test --test tidy scale` rewrites it. -->\n";

/// Of fewer samples the 95th percentile is hardly more than the largest one.
const ENOUGH_FOR_P95: usize = 20;

/// The units of costs that are drawn.
const TIMES: [&str; 2] = ["ms", "s"];

/// A cost at several sizes. Field names are those of benches/loop/results.rs.
#[derive(Deserialize)]
pub struct CurveResults {
    name: String,
    axis: String,
    what: String,
    unit: String,
    exponent: Option<f64>,
    r_squared: Option<f64>,
    points: Vec<PointResults>,
}

#[derive(Deserialize)]
struct PointResults {
    size: f64,
    count: usize,
    p5: f64,
    p50: f64,
    p95: f64,
}

#[test]
fn the_page_and_its_plots_are_made_from_the_committed_curves() {
    let mut results = fit_results();
    results.retain(|one| !one.curves.is_empty());
    let curves: Vec<&CurveResults> = results.iter().flat_map(|one| &one.curves).collect();
    let part = if curves.is_empty() {
        "\nNo samples are committed yet.\n\n".to_owned()
    } else {
        circumstances(&results) + &tables(&curves)
    };
    check_page(PAGE, BEGIN, &part);
    check_charts("scale-", &charts(&curves));
}

#[test]
fn exponents_follow_from_the_medians() {
    for curve in fit_results().iter().flat_map(|one| &one.curves) {
        let Some(exponent) = curve.exponent else {
            continue;
        };
        let logs: Vec<[f64; 2]> = curve
            .points
            .iter()
            .map(|point| [point.size.ln(), point.p50.ln()])
            .collect();
        let count = f64::from(u32::try_from(logs.len()).unwrap());
        let mean = |index: usize| logs.iter().map(|log| log[index]).sum::<f64>() / count;
        let (x, y) = (mean(0), mean(1));
        let product: f64 = logs.iter().map(|log| (log[0] - x) * (log[1] - y)).sum();
        let square: f64 = logs.iter().map(|log| (log[0] - x).powi(2)).sum();
        assert!((product / square - exponent).abs() < 0.001, "{}", curve.name);
    }
}

#[test]
fn a_table_has_every_size_of_its_axis() {
    let point = |size: f64, p50: f64, count: usize| json!({"size": size, "count": count, "p5": p50, "p50": p50, "p95": 2.0 * p50});
    let curve = |name: &str, points: serde_json::Value| json!({"name": name, "axis": "runs", "what": "A list.", "unit": "ms", "exponent": 0.5, "r_squared": 0.99, "points": points});
    let curves = [
        curve("all", json!([point(10.0, 1.0, 20), point(1000.0, 12.34, 20)])),
        curve("some", json!([point(1000.0, 7452.9, 1)])),
    ]
    .map(|one| serde_json::from_value::<CurveResults>(one).unwrap());
    let text = tables(&curves.iter().collect::<Vec<_>>());
    assert!(
        text.contains("| cost | unit | samples | 10 | 1,000 | exponent | R² | |"),
        "{text}"
    );
    let all = "| `all` | ms | 20 | 1.00 (2.00) | 12.3 (24.7) | 0.50 | 0.99 | A list. |";
    let some = "| `some` | ms | 1 |  | 7,453 | 0.50 | 0.99 | A list. |";
    assert!(text.contains(all) && text.contains(some), "{text}");
    assert!(text.contains("![runs, ms](images/scale-runs-ms.svg)"), "{text}");
    assert_eq!(charts(&curves.iter().collect::<Vec<_>>()).len(), 1);
}

/// The axes, in the order they were measured.
fn axes<'a>(curves: &[&'a CurveResults]) -> Vec<&'a str> {
    let mut axes: Vec<&str> = Vec::new();
    for curve in curves {
        if !axes.contains(&curve.axis.as_str()) {
            axes.push(&curve.axis);
        }
    }
    axes
}

/// A table for each axis, and its plots.
fn tables(curves: &[&CurveResults]) -> String {
    let mut text = String::new();
    for axis in axes(curves) {
        let of_axis: Vec<&CurveResults> = curves.iter().copied().filter(|one| one.axis == axis).collect();
        let mut sizes: Vec<f64> = of_axis
            .iter()
            .flat_map(|one| one.points.iter().map(|point| point.size))
            .collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let heads: Vec<String> = sizes.iter().map(|size| shown(*size, 0)).collect();
        let rule = "---|".repeat(sizes.len() + 6);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "### By {axis}\n\n| cost | unit | samples | {} | exponent | R² | |\n|{rule}",
            heads.join(" | ")
        );
        for curve in &of_axis {
            text.push_str(&row(curve, &sizes));
        }
        text.push('\n');
        for unit in TIMES {
            if of_axis.iter().any(|one| one.unit == unit) {
                let _ = writeln!(text, "![{axis}, {unit}](images/{})\n", file_name(axis, unit));
            }
        }
    }
    text
}

fn row(curve: &CurveResults, sizes: &[f64]) -> String {
    let cell = |size: &f64| {
        let point = curve
            .points
            .iter()
            .find(|point| point.size.total_cmp(size).is_eq());
        point.map_or(String::new(), |point| {
            if point.count < ENOUGH_FOR_P95 {
                significant(point.p50)
            } else {
                format!("{} ({})", significant(point.p50), significant(point.p95))
            }
        })
    };
    let fewest = curve.points.iter().map(|point| point.count).min().unwrap_or(0);
    let cells: Vec<String> = sizes.iter().map(cell).collect();
    let fit = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    format!(
        "| `{}` | {} | {fewest} | {} | {} | {} | {} |\n",
        curve.name,
        curve.unit,
        cells.join(" | "),
        fit(curve.exponent),
        fit(curve.r_squared),
        curve.what
    )
}

/// One plot for each axis and unit of time, with the name of its file.
fn charts(curves: &[&CurveResults]) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    for axis in axes(curves) {
        for unit in TIMES {
            let drawn = curves.iter().filter(|one| one.axis == axis && one.unit == unit);
            let series: Vec<LogLogSeries> = drawn.map(|one| series(one)).collect();
            if series.is_empty() {
                continue;
            }
            let chart = LogLogChart {
                title: format!("By {axis}"),
                x_label: axis.to_owned(),
                y_label: unit.to_owned(),
                series,
            };
            charts.push((file_name(axis, unit), log_log_chart(&chart)));
        }
    }
    charts
}

fn series(curve: &CurveResults) -> LogLogSeries {
    let exponent = curve
        .exponent
        .map_or(String::new(), |exponent| format!(", exponent {exponent:.2}"));
    let point = |point: &PointResults| LogLogPoint {
        size: point.size,
        p5: point.p5,
        p50: point.p50,
        p95: point.p95,
    };
    LogLogSeries {
        label: format!("{}{exponent}", curve.name),
        points: curve.points.iter().map(point).collect(),
    }
}

fn file_name(axis: &str, unit: &str) -> String {
    let words: String = axis
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == ' ')
        .collect();
    format!("scale-{}-{unit}.svg", words.replace(' ', "-"))
}

/// A number with at least three significant digits.
fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 || size == 0.0 => 2,
        _ => 3,
    };
    shown(value, decimals)
}

/// A number with commas between thousands.
fn shown(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}
