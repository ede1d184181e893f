//! The picture of the import table: modules in rows, each above everything that it imports.
#![expect(clippy::cast_precision_loss, reason = "there are few rows and modules")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What each module may import.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The bands of the picture, from the top: a module of the uppermost row of each, its name, and what is in it.
const BANDS: [(&str, &str, &[&str]); 5] = [
    ("cli", "edges", &["what people and", "programs use"]),
    (
        "assembly",
        "assembly",
        &["from settings to the", "parts of a run"],
    ),
    ("runner", "runner", &["the loop, and what it", "records"]),
    ("scm", "capabilities", &["what a run uses"]),
    (
        "atomic_file",
        "values",
        &[
            "plain values and small",
            "parts; arrows to these",
            "are not shown",
        ],
    ),
];

/// How many rows at the bottom have the modules that import nothing, or only such modules. They have no arrows.
const VALUE_ROWS: usize = 2;

const ROW: f64 = 54.0;
const BOX: f64 = 28.0;
const GAP: f64 = 16.0;
const LEFT: f64 = 170.0;
const WIDTH: f64 = 940.0;

const STYLE: &str = "<style>
svg { background: #ffffff; font: 13px system-ui, sans-serif; }
text { fill: #1f2328; }
.module { text-anchor: middle; font-family: ui-monospace, Menlo, Consolas, monospace; }
.band { fill: #f6f8fa; }
.name { font-size: 15px; font-weight: 600; }
.quiet { fill: #656d76; font-size: 12px; }
.box { fill: #ffffff; stroke: #0969da; stroke-width: 1.5; }
.arrow { fill: none; stroke: #8c959f; stroke-width: 1.3; }
.head { fill: #8c959f; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; }
text { fill: #e6edf3; }
.band { fill: #161b22; }
.quiet { fill: #8d96a0; }
.box { fill: #0d1117; stroke: #4493f8; }
.arrow { stroke: #6e7681; }
.head { fill: #6e7681; }
}
</style>
<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>
";

/// A module, or a point where an arrow passes through a row.
struct Node {
    name: String,
    row: usize,
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

impl Node {
    fn width(&self) -> f64 {
        if self.name.is_empty() {
            0.0
        } else {
            24.0 + 8.0 * self.name.chars().count() as f64
        }
    }
}

/// Nodes in rows, from the bottom. An arrow leads from row to row.
struct Graph {
    nodes: Vec<Node>,
    rows: Vec<Vec<usize>>,
    arrows: Vec<Vec<usize>>,
}

/// The picture as SVG.
pub fn picture(imports: &Imports) -> String {
    let mut graph = Graph::new(imports);
    graph.place();
    graph.draw()
}

/// How many modules are on the longest way down from this one.
fn height(module: &str, imports: &Imports) -> usize {
    let below = imports[module].iter().map(|other| height(other, imports) + 1);
    below.max().unwrap_or(0)
}

/// The row of each module, from the bottom: above everything that it imports, and right below what imports it if it has no
/// arrows of its own.
fn rows(imports: &Imports) -> BTreeMap<&str, usize> {
    let mut rows: BTreeMap<&str, usize> = imports
        .keys()
        .map(|name| (name.as_str(), height(name, imports)))
        .collect();
    let values: Vec<&str> = rows
        .iter()
        .filter(|(_, row)| **row < VALUE_ROWS)
        .map(|(name, _)| *name)
        .collect();
    for (index, name) in values.iter().enumerate() {
        rows.insert(name, VALUE_ROWS - 1 - index * VALUE_ROWS / values.len());
    }
    let arrows = arrows(imports);
    for name in imports.keys().filter(|name| !values.contains(&name.as_str())) {
        let importers = arrows
            .iter()
            .filter(|(_, to)| to == name)
            .map(|(from, _)| rows[from] - 1);
        if let Some(row) = importers
            .min()
            .filter(|_| !arrows.iter().any(|(from, _)| from == name))
        {
            rows.insert(name, row);
        }
    }
    rows
}

fn reaches(from: &str, to: &str, imports: &Imports) -> bool {
    imports[from]
        .iter()
        .any(|next| next == to || reaches(next, to, imports))
}

/// The imports that do not follow from others, without those of values.
fn arrows(imports: &Imports) -> Vec<(&str, &str)> {
    let all = imports
        .iter()
        .flat_map(|(from, targets)| targets.iter().map(move |to| (from.as_str(), to.as_str())));
    all.filter(|(from, to)| {
        let follows = imports[*from]
            .iter()
            .any(|next| next != to && reaches(next, to, imports));
        !follows && height(to, imports) >= VALUE_ROWS
    })
    .collect()
}

impl Graph {
    fn new(imports: &Imports) -> Self {
        let mut graph = Self {
            nodes: Vec::new(),
            rows: Vec::new(),
            arrows: Vec::new(),
        };
        let ids: BTreeMap<&str, usize> = rows(imports)
            .into_iter()
            .map(|(name, row)| (name, graph.add(name, row)))
            .collect();
        for (from, to) in arrows(imports) {
            let (from, to) = (ids[from], ids[to]);
            let between = (graph.nodes[to].row + 1..graph.nodes[from].row).rev();
            let mut path = vec![from];
            path.extend(between.map(|row| graph.add("", row)));
            path.push(to);
            for pair in path.windows(2) {
                graph.nodes[pair[0]].below.push(pair[1]);
                graph.nodes[pair[1]].above.push(pair[0]);
            }
            graph.arrows.push(path);
        }
        graph
    }

    fn add(&mut self, name: &str, row: usize) -> usize {
        let id = self.nodes.len();
        self.rows.resize_with(self.rows.len().max(row + 1), Vec::new);
        self.rows[row].push(id);
        self.nodes.push(Node {
            name: name.to_owned(),
            row,
            x: id as f64,
            above: Vec::new(),
            below: Vec::new(),
        });
        id
    }

    /// Moves each node to the mean of its neighbours, or near it where boxes would touch: row by row, down and up in turns.
    fn place(&mut self) {
        let downwards: Vec<usize> = (0..self.rows.len()).rev().collect();
        let upwards: Vec<usize> = (0..self.rows.len()).collect();
        for row in [downwards, upwards].concat().repeat(20) {
            let mut places: Vec<(f64, usize)> =
                self.rows[row].iter().map(|id| (self.wanted(*id), *id)).collect();
            places.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (wanted, ids): (Vec<f64>, Vec<usize>) = places.into_iter().unzip();
            let widths: Vec<f64> = ids.iter().map(|id| self.nodes[*id].width()).collect();
            for (id, x) in ids.iter().zip(apart(&wanted, &widths)) {
                self.nodes[*id].x = x;
            }
        }
        self.centre(&self.rows[VALUE_ROWS..].concat());
        for row in 0..VALUE_ROWS {
            self.centre(&self.rows[row].clone());
        }
    }

    fn wanted(&self, id: usize) -> f64 {
        let node = &self.nodes[id];
        let mean =
            |others: &[usize]| others.iter().map(|id| self.nodes[*id].x).sum::<f64>() / others.len() as f64;
        match (&node.above[..], &node.below[..]) {
            ([], []) => node.x,
            (others, []) | ([], others) => mean(others),
            (above, below) => f64::midpoint(mean(above), mean(below)),
        }
    }

    /// Moves these nodes together to the middle of the picture.
    fn centre(&mut self, ids: &[usize]) {
        let nodes = ids.iter().map(|id| &self.nodes[*id]);
        let left = nodes
            .clone()
            .map(|node| node.x - node.width() / 2.0)
            .fold(f64::MAX, f64::min);
        let right = nodes
            .map(|node| node.x + node.width() / 2.0)
            .fold(f64::MIN, f64::max);
        let shift = f64::midpoint(LEFT, WIDTH) - f64::midpoint(left, right);
        for id in ids {
            self.nodes[*id].x += shift;
        }
    }

    /// The middle of a row.
    fn y(&self, row: usize) -> f64 {
        8.0 + ROW * (self.rows.len() - 1 - row) as f64 + ROW / 2.0
    }

    fn draw(&self) -> String {
        let height = 16.0 + ROW * self.rows.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" aria-label=\"The modules of ralph in rows, each above those that it imports\">\n{STYLE}"
        );
        self.draw_bands(&mut svg);
        for path in &self.arrows {
            let _ = writeln!(
                svg,
                "<path class=\"arrow\" marker-end=\"url(#head)\" d=\"{}\"/>",
                self.line(path)
            );
        }
        for node in self.nodes.iter().filter(|node| !node.name.is_empty()) {
            let (width, y) = (node.width(), self.y(node.row));
            let _ = writeln!(
                svg,
                "<rect class=\"box\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{BOX}\" rx=\"5\"/>\
                 <text class=\"module\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                node.x - width / 2.0,
                y - BOX / 2.0,
                node.x,
                y + 4.5,
                node.name
            );
        }
        svg + "</svg>\n"
    }

    fn draw_bands(&self, svg: &mut String) {
        let row_of = |name: &str| {
            self.nodes
                .iter()
                .find(|node| node.name == name)
                .expect("each band begins with a module")
                .row
        };
        for (index, (module, name, what)) in BANDS.iter().enumerate() {
            let top = self.y(row_of(module)) - ROW / 2.0;
            let end = BANDS
                .get(index + 1)
                .map_or(self.y(0) + ROW / 2.0, |next| self.y(row_of(next.0)) - ROW / 2.0);
            let _ = writeln!(
                svg,
                "<rect class=\"band\" x=\"8\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"6\"/>\
                 <text class=\"name\" x=\"20\" y=\"{:.1}\">{name}</text>",
                top + 2.0,
                WIDTH - 16.0,
                end - top - 4.0,
                top + 26.0
            );
            for (line, words) in what.iter().enumerate() {
                let y = top + 44.0 + 15.0 * line as f64;
                let _ = writeln!(svg, "<text class=\"quiet\" x=\"20\" y=\"{y:.1}\">{words}</text>");
            }
        }
    }

    /// From box to box, straight through each row between them.
    fn line(&self, path: &[usize]) -> String {
        let at = |id: usize| (self.nodes[id].x, self.y(self.nodes[id].row));
        let (x, y) = at(path[0]);
        let mut line = format!("M{x:.1} {:.1}", y + BOX / 2.0);
        for pair in path.windows(2) {
            let ((from_x, from_y), (x, y)) = (at(pair[0]), at(pair[1]));
            let (from_y, to_y) = (from_y + BOX / 2.0, y - BOX / 2.0);
            let middle = f64::midpoint(from_y, to_y);
            let _ = write!(
                line,
                "C{from_x:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {to_y:.1}"
            );
            if pair[1] != path[path.len() - 1] {
                let _ = write!(line, "V{:.1}", y + BOX / 2.0);
            }
        }
        line
    }
}

/// Where things of these widths stand in a row so that they do not touch, as near to the wanted places as possible: those
/// that would touch stand around their mean.
fn apart(wanted: &[f64], widths: &[f64]) -> Vec<f64> {
    let mut offsets = vec![0.0];
    for pair in widths.windows(2) {
        offsets.push(offsets[offsets.len() - 1] + f64::midpoint(pair[0], pair[1]) + GAP);
    }
    // Blocks of neighbours that touch: the sum of where they would begin, and how many they are.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (place, offset) in wanted.iter().zip(&offsets) {
        let mut block = (place - offset, 1);
        while let Some(last) = blocks
            .last()
            .copied()
            .filter(|last| last.0 / last.1 as f64 > block.0 / block.1 as f64)
        {
            blocks.pop();
            block = (block.0 + last.0, block.1 + last.1);
        }
        blocks.push(block);
    }
    let starts = blocks
        .iter()
        .flat_map(|(sum, count)| std::iter::repeat_n(sum / *count as f64, *count));
    starts
        .zip(offsets)
        .map(|(start, offset)| start + offset)
        .collect()
}

mod tests {
    use super::{Imports, apart, arrows, rows};

    fn imports(table: &[(&str, &[&str])]) -> Imports {
        let row = |(module, targets): &(&str, &[&str])| {
            let targets = targets.iter().map(|name| (*name).to_owned());
            ((*module).to_owned(), targets.collect())
        };
        table.iter().map(row).collect()
    }

    #[test]
    fn arrows_that_follow_from_others_are_left_out() {
        let table = imports(&[
            ("id", &[]),
            ("text", &["id"]),
            ("git", &["text"]),
            ("count", &["text"]),
            ("run", &["git", "id"]),
            ("top", &["count", "git", "run", "text"]),
        ]);
        assert_eq!(arrows(&table), [("run", "git"), ("top", "count"), ("top", "run")]);
        let expected = [
            ("count", 3),
            ("git", 2),
            ("id", 1),
            ("run", 3),
            ("text", 0),
            ("top", 4),
        ];
        assert_eq!(rows(&table), expected.into());
    }

    #[test]
    fn boxes_that_would_touch_are_moved_apart() {
        assert_eq!(apart(&[0.0, 100.0], &[20.0, 20.0]), [0.0, 100.0]);
        assert_eq!(apart(&[10.0, 10.0], &[20.0, 20.0]), [-8.0, 28.0]);
    }
}
