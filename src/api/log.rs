//! The log of a run as lines of text: by page, by kind, and by what is searched for.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use axum::Json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{Event, LineStyle, styled_line};
use crate::state::{RunDir, if_exists, whole_length};
use crate::text::{cut_middle, visible};

use super::elsewhere::NamedEvents;
use super::extract::Parameters;
use super::problem::Problem;
use super::runs::blocking;
use super::sgr::{self, LogSpan};

/// A line with more pieces is shown without colours.
const MOST_SPANS: usize = 32;

/// How many lines an answer has, by default and at most.
const LINES: usize = 500;
const MOST_LINES: usize = 5000;

/// How many bytes of the log are read back at first, to find the lines before an id.
const FIRST_STEP: u64 = 256 * 1024;

/// How many bytes are read at once, if no single line is longer.
const LONGEST_STEP: u64 = 4 * 1024 * 1024;

/// How many bytes of text an answer has, about.
const MOST_TEXT: usize = 2 * 1024 * 1024;

/// How many characters of one line are shown.
const LONGEST_LINE: usize = 4000;

/// The longest text to search for, in bytes.
const LONGEST_SEARCH: usize = 200;

/// Which lines. With `after` the first lines after it, with `at` those around it, else the last ones before `before`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LogPage {
    /// The id of an event: lines after it, oldest first. 0 is the beginning.
    #[serde(default)]
    after: Option<u64>,
    /// The id of an event: lines up to the one before it. By default the end of the log.
    #[serde(default)]
    before: Option<u64>,
    /// The id of an event: the lines around it, and its own.
    #[serde(default)]
    at: Option<u64>,
    /// How many at most.
    #[serde(default)]
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<usize>,
    /// Only these kinds of events, as in `action,output`.
    #[serde(default)]
    kinds: Option<String>,
    /// Only lines with this text, in any case. The whole log is searched.
    #[serde(default)]
    search: Option<String>,
}

/// Lines of the log.
#[derive(Serialize, JsonSchema)]
pub(super) struct LogLines {
    /// The lines, oldest first.
    lines: Vec<LogLine>,
    /// `after` of the lines that follow.
    next: u64,
    /// `before` of the lines before these; `null` if there are none.
    earlier: Option<u64>,
    /// Whether the log already goes on after these lines.
    is_cut: bool,
}

/// A line of the log. Its text may have several rows.
#[derive(Serialize, JsonSchema)]
struct LogLine {
    /// The id of the event.
    id: u64,
    /// When it happened.
    at: String,
    /// The iteration.
    iteration: Option<u32>,
    /// The kind of event, as `action` or `output`.
    kind: String,
    /// How it stands out: `plain`, `heading`, `good`, `bad`, `notice`, `good_end` or `notice_end`.
    #[schemars(with = "String")]
    style: LineStyle,
    /// The text. Nothing in it can command a terminal.
    text: String,
    /// The same text in pieces, if its program coloured it; otherwise empty.
    spans: Vec<LogSpan>,
}

pub(super) async fn log(
    NamedEvents(log): NamedEvents,
    Parameters(page): Parameters<LogPage>,
) -> Result<Json<LogLines>, Problem> {
    let filter = LogFilter::new(&page)?;
    let limit = page.limit.unwrap_or(LINES).clamp(1, MOST_LINES);
    let unreadable = |error: io::Error| Problem::internal(error.to_string());
    blocking(move || {
        let lines = match (page.after, page.at) {
            (Some(after), _) => lines_after(&log.path, after, limit, &filter),
            (None, Some(at)) => lines_around(&log.path, at, limit, &filter),
            (None, None) => lines_before(&log.path, page.before, limit, &filter),
        };
        Ok(Json(lines.map_err(unreadable)?))
    })
    .await
}

/// The last lines of all kinds.
pub(super) fn newest_lines(run: &RunDir, limit: usize) -> io::Result<LogLines> {
    lines_before(&run.events_file(), None, limit, &LogFilter::default())
}

/// Which events are shown.
#[derive(Default)]
struct LogFilter {
    kinds: Vec<String>,
    search: String,
}

impl LogFilter {
    fn new(page: &LogPage) -> Result<Self, Problem> {
        let search = page.search.as_deref().unwrap_or_default();
        if search.len() > LONGEST_SEARCH {
            return Err(Problem::bad_request(format!(
                "`search` has at most {LONGEST_SEARCH} bytes"
            )));
        }
        let kinds = page.kinds.as_deref().unwrap_or_default().split(',');
        Ok(Self {
            kinds: kinds.filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
            search: search.to_lowercase(),
        })
    }

    /// The line of an event, if it is shown. Events of another version of ralph have no line.
    fn line(&self, id: u64, json: &[u8]) -> Option<LogLine> {
        let event: Event = serde_json::from_slice(json).ok()?;
        let kind = kind_of(&event)?;
        if !self.kinds.is_empty() && !self.kinds.contains(&kind) {
            return None;
        }
        let (style, mut text) = styled_line(&event);
        let mut spans = sgr::spans(&text);
        if !spans.is_empty() {
            text = sgr::plain_text(&spans);
        }
        if !self.search.is_empty() && !text.to_lowercase().contains(&self.search) {
            return None;
        }
        let shown = cut_middle(&visible(&text), LONGEST_LINE).into_owned();
        if shown != text || spans.len() > MOST_SPANS {
            spans.clear();
            text = shown;
        }
        Some(LogLine {
            id,
            at: event.at.to_string(),
            iteration: event.iteration,
            kind,
            style,
            text,
            spans,
        })
    }
}

/// The name of the kind of an event, as its JSON has it.
fn kind_of(event: &Event) -> Option<String> {
    let json = serde_json::to_value(&event.kind).ok()?;
    Some(json.get("event")?.as_str()?.to_owned())
}

fn lines_after(log: &Path, after: u64, limit: usize, filter: &LogFilter) -> io::Result<LogLines> {
    let mut found = LogLines {
        lines: Vec::new(),
        next: after,
        earlier: None,
        is_cut: false,
    };
    let Some(mut file) = if_exists(File::open(log))? else {
        return Ok(found);
    };
    file.seek(SeekFrom::Start(after))?;
    let mut reader = BufReader::new(file);
    let (mut line, mut text) = (Vec::new(), 0);
    while found.lines.len() < limit && text < MOST_TEXT {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        found.next += length as u64;
        if let Some(shown) = filter.line(found.next, &line) {
            text += shown.text.len();
            found.lines.push(shown);
        }
    }
    let file = reader.get_mut();
    let length = file.metadata()?.len();
    found.is_cut = found.next < whole_length(file, length)?;
    let first = found.lines.first().filter(|_| after > 0);
    found.earlier = first.map(|line| line.id);
    Ok(found)
}

/// The lines around an event: up to half of them end with its own line, the others follow it.
fn lines_around(log: &Path, at: u64, limit: usize, filter: &LogFilter) -> io::Result<LogLines> {
    let upto = lines_before(log, Some(at.saturating_add(1)), limit.div_ceil(2), filter)?;
    let mut found = lines_after(log, upto.next, limit.saturating_sub(upto.lines.len()), filter)?;
    found.lines.splice(0..0, upto.lines);
    found.earlier = upto.earlier;
    Ok(found)
}

/// The last lines before an id. Reads back in steps that grow, until there are enough of them.
fn lines_before(log: &Path, before: Option<u64>, limit: usize, filter: &LogFilter) -> io::Result<LogLines> {
    let mut found = LogLines {
        lines: Vec::new(),
        next: 0,
        earlier: None,
        is_cut: false,
    };
    let Some(mut file) = if_exists(File::open(log))? else {
        return Ok(found);
    };
    let length = file.metadata()?.len();
    let end = before.map_or(length, |before| before.saturating_sub(1).min(length));
    let (mut step, mut start) = (FIRST_STEP, end);
    found.next = end;
    while found.lines.len() < limit && start > 0 {
        let from = start.saturating_sub(step);
        let text = read_range(&mut file, from, start)?;
        // A step may begin inside a line, which belongs to the next step.
        let skipped = match from {
            0 => 0,
            _ => text
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(text.len(), |at| at + 1),
        };
        if skipped == text.len() {
            // No line begins here: the step was too short for it.
            step *= 2;
            if from == 0 {
                break;
            }
            continue;
        }
        step = (step * 2).min(LONGEST_STEP);
        let lines = whole_lines(&text[skipped..], from + skipped as u64, filter);
        if start == end {
            found.next = end - trailing(&text);
        }
        found.lines.splice(0..0, lines);
        start = from + skipped as u64;
    }
    let mut left = MOST_TEXT;
    let fits = |line: &&LogLine| {
        let fits = left > 0;
        left = left.saturating_sub(line.text.len());
        fits
    };
    let shown = found.lines.iter().rev().take(limit).take_while(fits).count();
    let extra = found.lines.len() - shown;
    found.lines.drain(..extra);
    let first = found.lines.first().filter(|_| extra > 0 || start > 0);
    found.earlier = first.map(|line| line.id);
    found.is_cut = before.is_some() && found.next < whole_length(&mut file, length)?;
    Ok(found)
}

/// How many bytes there are after the last whole line.
fn trailing(text: &[u8]) -> u64 {
    text.iter().rev().take_while(|byte| **byte != b'\n').count() as u64
}

fn whole_lines(text: &[u8], from: u64, filter: &LogFilter) -> Vec<LogLine> {
    let mut id = from;
    let mut lines = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        id += line.len() as u64;
        if line.ends_with(b"\n") {
            lines.extend(filter.line(id, line));
        }
    }
    lines
}

fn read_range(file: &mut File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.take(to - from).read_to_end(&mut text)?;
    Ok(text)
}
