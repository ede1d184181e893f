//! Charts as SVG text: bars for the dashboard, dots with ranges for the benchmarks, lines for how costs grow. Every text is
//! escaped.

mod axis;
mod bar;
mod dot_range;
mod log_log;
mod svg;

pub use bar::bar_chart;
pub use dot_range::{DotRange, DotRangeChart, DotRangeGroup, dot_range_chart};
pub use log_log::{LogLogChart, LogLogPoint, LogLogSeries, log_log_chart};
