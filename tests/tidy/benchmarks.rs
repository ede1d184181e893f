//! The plots and the table of docs/benchmarks.md are made from the samples below benches/results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ralph::chart::{DotRange, DotRangeChart, DotRangeGroup, dot_range_chart};
use serde::Deserialize;

use crate::documents::code_in_first_cells;
use crate::none;
use crate::repository::{self, check, is_update};
use crate::scale::CurveResults;

const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- Generated from benches/results; `RALPH_UPDATE_REFERENCE=1 cargo test --test tidy benchmarks` rewrites it. -->\n";
const END: &str = "<!-- End of the generated part. -->\n";

/// What `benches/run` keeps of one benchmark. Field names are those of benches/loop/results.rs.
#[derive(Deserialize)]
pub struct BenchResults {
    bench: String,
    date: String,
    commit: Option<String>,
    quick: bool,
    optimized: bool,
    processor: String,
    cores: usize,
    memory_gb: f64,
    load_before: Option<f64>,
    versions: BTreeMap<String, String>,
    figures: Vec<FigureResults>,
    /// For docs/scale.md.
    #[serde(default)]
    pub curves: Vec<CurveResults>,
}

#[derive(Deserialize)]
struct FigureResults {
    name: String,
    unit: String,
    percentile: f64,
    target: Target,
    met: bool,
    ours: Side,
    peer: Option<Side>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Target {
    Ratio(f64),
    Most(f64),
}

#[derive(Deserialize)]
struct Side {
    #[serde(default)]
    name: String,
    value: f64,
    count: usize,
    p5: f64,
    p50: f64,
    p95: f64,
    samples: Vec<f64>,
}

#[test]
fn the_page_and_its_plots_are_made_from_the_committed_samples() {
    let mut results = fit_results();
    results.retain(|one| !one.figures.is_empty());
    let charts = charts(&results);
    check_page(PAGE, BEGIN, &generated_part(&results, &charts));
    check_charts("bench-", &charts);
}

/// The committed results. Those of a quick or an unoptimized run are not for documents.
pub fn fit_results() -> Vec<BenchResults> {
    let results = read_results("benches/results");
    let unfit = results
        .iter()
        .filter(|one| one.quick || !one.optimized)
        .map(|one| one.bench.clone());
    none("results of a quick or an unoptimized run", unfit);
    results
}

/// The generated part of a document is this text.
pub fn check_page(file: &str, begin: &str, part: &str) {
    let page = repository::text(file);
    let (before, after) = around_generated_part(&page, begin);
    check(file, &format!("{before}{begin}{part}{END}{after}"));
}

fn around_generated_part<'a>(page: &'a str, begin: &str) -> (&'a str, &'a str) {
    let (before, rest) = page.split_once(begin).expect("the page has a generated part");
    let (_, after) = rest.split_once(END).expect("the generated part has an end");
    (before, after)
}

/// The plots whose names have this prefix are these.
pub fn check_charts(prefix: &str, charts: &[(String, String)]) {
    for (file, svg) in charts {
        check(&format!("docs/images/{file}"), svg);
    }
    remove_or_find_stale(prefix, charts);
}

/// One whose name has a suffix that the page explains once has the row of its name without it.
#[test]
fn every_figure_has_a_row_that_explains_it() {
    let page = repository::text(PAGE);
    let (_, explanations) = around_generated_part(&page, BEGIN);
    let rows = code_in_first_cells(explanations);
    let suffixes: Vec<&str> = explanations
        .split("Figures that end in `")
        .skip(1)
        .filter_map(|rest| rest.split('`').next())
        .collect();
    let is_explained = |name: &str| {
        let cut = suffixes.iter().find_map(|suffix| name.strip_suffix(*suffix));
        rows.contains(&cut.unwrap_or(name))
    };
    let results = read_results("benches/results");
    let names = results
        .iter()
        .flat_map(|one| &one.figures)
        .map(|figure| &figure.name);
    none(
        "figures that no table of docs/benchmarks.md explains",
        names.filter(|name| !is_explained(name)).cloned(),
    );
}

#[test]
fn a_figure_that_is_short_comes_first_in_the_table_and_the_plot() {
    let results = read_results("tests/fixtures/benchmarks");
    let charts = charts(&results);
    let files: Vec<&str> = charts.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(files, ["bench-synthetic-ms.svg", "bench-synthetic-count.svg"]);
    check("tests/fixtures/benchmarks/bench-synthetic-ms.svg", &charts[0].1);
    let part = generated_part(&results, &charts);
    check("tests/fixtures/benchmarks/page.txt", &part);
    let place = |name: &str| part.find(&format!("| `{name}`")).unwrap();
    assert!(place("short") < place("slower-than-the-peer"), "{part}");
    assert!(place("slower-than-the-peer") < place("fast"), "{part}");
}

#[test]
fn percentiles_are_those_of_the_samples() {
    for one in read_results("benches/results")
        .iter()
        .flat_map(|one| &one.figures)
    {
        for side in [Some(&one.ours), one.peer.as_ref()].into_iter().flatten() {
            let ordered = side.p5 <= side.p50 && side.p50 <= side.p95;
            let all_kept = side.samples.len() == side.count;
            assert!(ordered && (all_kept || side.samples.len() >= 500), "{}", one.name);
        }
    }
}

/// All files of a directory, by name.
fn read_results(dir: &str) -> Vec<BenchResults> {
    let is_result = |file: &repository::File| {
        let name = file
            .path
            .strip_prefix(dir)
            .and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| !name.contains('/')) && file.extension() == Some("json")
    };
    let files = repository::files().into_iter().filter(is_result);
    files
        .map(|file| serde_json::from_str(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path)))
        .collect()
}

/// One chart for each benchmark and unit, with the name of its file.
fn charts(results: &[BenchResults]) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    for one in results {
        let mut units: Vec<&str> = Vec::new();
        for figure in &one.figures {
            if !units.contains(&figure.unit.as_str()) {
                units.push(&figure.unit);
            }
        }
        for unit in units {
            let mut figures: Vec<&FigureResults> =
                one.figures.iter().filter(|figure| figure.unit == unit).collect();
            figures.sort_by_key(|figure| rank(figure));
            let slug = match unit {
                "" => "count".to_owned(),
                "%" => "percent".to_owned(),
                unit => unit.to_lowercase(),
            };
            let chart = DotRangeChart {
                title: one.bench.clone(),
                unit: unit.to_owned(),
                groups: figures.into_iter().map(group).collect(),
            };
            charts.push((format!("bench-{}-{slug}.svg", one.bench), dot_range_chart(&chart)));
        }
    }
    charts
}

fn group(figure: &FigureResults) -> DotRangeGroup {
    let range = |label: &str, side: &Side| DotRange {
        label: label.to_owned(),
        p5: side.p5,
        p50: side.p50,
        p95: side.p95,
        count: side.count,
    };
    // Beside the median that the plot shows, which percentile the target is about.
    let percentile = format!("p{}", figure.percentile);
    let name = match percentile.as_str() {
        "p50" => figure.name.clone(),
        other if figure.name.ends_with(other) => figure.name.clone(),
        other => format!("{} ({other})", figure.name),
    };
    DotRangeGroup {
        ours: range(&name, &figure.ours),
        peer: figure.peer.as_ref().map(|peer| range(&peer.name, peer)),
        target: match figure.target {
            Target::Most(most) => most,
            Target::Ratio(most) => most * figure.peer.as_ref().map_or(0.0, |peer| peer.value),
        },
        met: figure.met,
    }
}

/// Lower is earlier: what misses its target, what is slower than its peer, and the rest.
fn rank(figure: &FigureResults) -> u8 {
    match (figure.met, ratio(figure)) {
        (false, _) => 0,
        (true, Some(ratio)) if ratio > 1.0 => 1,
        _ => 2,
    }
}

fn ratio(figure: &FigureResults) -> Option<f64> {
    let peer = figure.peer.as_ref()?.value;
    (peer != 0.0).then_some(figure.ours.value / peer)
}

fn generated_part(results: &[BenchResults], charts: &[(String, String)]) -> String {
    if results.is_empty() {
        return "\nNo samples are committed yet. The tables below are from runs before samples were kept.\n\n"
            .to_owned();
    }
    let mut text =
        "\n| figure | ours | peer | ratio | target | | samples |\n|---|---|---|---|---|---|---|\n".to_owned();
    let mut figures: Vec<&FigureResults> = results.iter().flat_map(|one| &one.figures).collect();
    figures.sort_by_key(|figure| rank(figure));
    for figure in figures {
        text.push_str(&table_row(figure));
    }
    text.push_str(&circumstances(results));
    for (file, _) in charts {
        let name = file.trim_start_matches("bench-").trim_end_matches(".svg");
        // Writing to a string does not fail.
        let _ = writeln!(text, "![{name}](images/{file})\n");
    }
    text
}

fn table_row(figure: &FigureResults) -> String {
    let unit = match figure.unit.as_str() {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let percentile = match format!(" (p{})", figure.percentile) {
        median if median == " (p50)" => String::new(),
        other => other,
    };
    let peer = figure.peer.as_ref().map_or(String::new(), |peer| {
        format!("{:.1}{unit}, {}", peer.value, peer.name.replace('|', "\\|"))
    });
    let ratio = ratio(figure).map_or(String::new(), |ratio| format!("{ratio:.3}"));
    let target = match figure.target {
        Target::Ratio(most) => format!("ratio <= {most}"),
        Target::Most(most) => format!("<= {most}{unit}"),
    };
    let samples = match &figure.peer {
        Some(peer) => format!("{}, {}", figure.ours.count, peer.count),
        None => figure.ours.count.to_string(),
    };
    format!(
        "| `{}` | {:.1}{unit}{percentile} | {peer} | {ratio} | {target} | {} | {samples} |\n",
        figure.name,
        figure.ours.value,
        if figure.met { "ok" } else { "**short**" }
    )
}

/// When and where these were measured.
pub fn circumstances<'a>(results: impl IntoIterator<Item = &'a BenchResults>) -> String {
    let head =
        "\n| benchmark | measured | commit | host | load before | versions |\n|---|---|---|---|---|---|\n";
    let rows: String = results.into_iter().map(circumstances_row).collect();
    format!("{head}{rows}\n")
}

fn circumstances_row(one: &BenchResults) -> String {
    let versions: Vec<String> = one
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    format!(
        "| `{}` | {} | {} | {}, {} cores, {} GB | {} | {} |\n",
        one.bench,
        one.date,
        one.commit.as_deref().unwrap_or("unknown"),
        one.processor,
        one.cores,
        one.memory_gb,
        one.load_before
            .map_or("unknown".to_owned(), |load| load.to_string()),
        versions.join(", ")
    )
}

/// Plots that no result makes any more.
fn remove_or_find_stale(prefix: &str, charts: &[(String, String)]) {
    let Ok(images) = std::fs::read_dir(repository::root().join("docs/images")) else {
        return;
    };
    let is_stale = |path: &Path| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.starts_with(prefix) && !charts.iter().any(|(file, _)| file == name)
    };
    let stale: Vec<_> = images
        .map(|image| image.unwrap().path())
        .filter(|path| is_stale(path))
        .collect();
    if is_update() {
        for path in &stale {
            std::fs::remove_file(path).unwrap();
        }
        return;
    }
    none(
        "plots without results",
        stale.iter().map(|path| path.display().to_string()),
    );
}
