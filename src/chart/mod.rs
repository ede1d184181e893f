//! Charts as SVG text: bars for the dashboard, dots with ranges for the benchmarks. Every text is escaped.

mod bar;
mod dot_range;
mod svg;

pub use bar::bar_chart;
pub use dot_range::{DotRange, DotRangeChart, DotRangeGroup, dot_range_chart};
