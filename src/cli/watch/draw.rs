//! Draws the view. Everything that a colour says is also said in words.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::text::{counted, one_line};

use super::overview::{COLUMNS, RunGroup, cells, columns_for};
use super::state::{InputMode, OpenRun, Prompt, RunTab, WatchState};
use super::text_view::{TextView, Tone, ToneLine, cut, tail};

/// The most rows that a message has.
const MOST_STATUS: usize = 4;

/// How tones look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) colour: bool,
}

impl Theme {
    fn style(self, tone: Tone) -> Style {
        let (colour, modifier) = match tone {
            Tone::Plain => (None, Modifier::empty()),
            Tone::Heading => (None, Modifier::BOLD),
            Tone::Good => (Some(Color::Green), Modifier::empty()),
            Tone::Bad => (Some(Color::Red), Modifier::empty()),
            Tone::Notice => (Some(Color::Yellow), Modifier::empty()),
            Tone::Faint => (None, Modifier::DIM),
        };
        let style = Style::new().add_modifier(modifier);
        match colour.filter(|_| self.colour) {
            Some(colour) => style.fg(colour),
            None => style,
        }
    }

    fn line(self, line: &ToneLine) -> Line<'_> {
        Line::styled(line.text.as_str(), self.style(line.tone))
    }
}

/// The parts of the screen.
struct Areas {
    title: Rect,
    /// The tabs of a run, or the heads of the list.
    head: Rect,
    body: Rect,
    status: Rect,
    keys: Rect,
}

fn areas(area: Rect, status_rows: usize) -> Areas {
    let status_rows = u16::try_from(status_rows)
        .unwrap_or(1)
        .min(area.height / 3)
        .max(1);
    let [title, head, body, status, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(status_rows),
        Constraint::Length(1),
    ])
    .areas(area);
    Areas {
        title,
        head,
        body,
        status,
        keys,
    }
}

/// Lays the text of the view out for a terminal of this size. Called before each [`draw`].
pub(super) fn lay_out(state: &mut WatchState, width: u16, height: u16) {
    let area = Rect::new(0, 0, width, height);
    let body = areas(area, status_lines(state, width.into()).len()).body;
    state.resize(body.width.into(), body.height.into());
}

/// Draws the view.
pub(super) fn draw(frame: &mut Frame, state: &WatchState, theme: Theme) {
    let width = usize::from(frame.area().width);
    let status = status_lines(state, width);
    let areas = areas(frame.area(), status.len());
    let title = cut(&title(state), width);
    frame.render_widget(
        Line::styled(title, Style::new().add_modifier(Modifier::BOLD)),
        areas.title,
    );
    match (&state.mode, &state.open) {
        (InputMode::Help, _) => draw_help(frame, &areas, &state.help, theme),
        (_, Some(open)) => draw_run(frame, &areas, open, theme),
        (_, None) => draw_list(frame, &areas, state, theme),
    }
    let shown: Vec<Line> = status.iter().map(|line| theme.line(line)).collect();
    frame.render_widget(Paragraph::new(shown), areas.status);
    if let InputMode::Type { .. } = state.mode {
        let end = status
            .first()
            .map_or(0, |line| Span::raw(line.text.as_str()).width());
        let x = u16::try_from(end)
            .unwrap_or(u16::MAX)
            .min(areas.status.width.saturating_sub(1));
        frame.set_cursor_position(Position::new(areas.status.x + x, areas.status.y));
    }
    frame.render_widget(
        Line::styled(key_line(state, width), theme.style(Tone::Faint)),
        areas.keys,
    );
}

fn title(state: &WatchState) -> String {
    if let Some(open) = &state.open {
        let details = open.overview.as_ref().map(|overview| &overview.details);
        let task = details.map_or("", |details| &details.task);
        return format!("{} {}", open.id, one_line(task));
    }
    let count = state.runs.as_ref().map_or(0, Vec::len);
    let more = if state.has_more_runs { " newest" } else { "" };
    format!("ralph watch: {}{more} on {}", counted(count, "run"), state.source)
}

fn draw_list(frame: &mut Frame, areas: &Areas, state: &WatchState, theme: Theme) {
    let Some(runs) = &state.runs else {
        frame.render_widget(Line::raw("Looking for runs ..."), areas.body);
        return;
    };
    if runs.is_empty() {
        let text = ["No runs yet.", "`ralph run` starts one, `ralph demo` shows one."];
        frame.render_widget(Paragraph::new(text.map(Line::raw).to_vec()), areas.body);
        return;
    }
    let width = usize::from(areas.body.width);
    let heads = COLUMNS.map(|(head, _)| head.to_owned());
    let head = format!("  {}", list_row(&heads, "TASK", width.saturating_sub(2)));
    frame.render_widget(Line::styled(head, theme.style(Tone::Faint)), areas.head);
    let (mut lines, mut at, mut group) = (Vec::new(), 0, None);
    for row in runs {
        let own = RunGroup::of(&row.state, row.queue.as_deref());
        if group != Some(own) {
            group = Some(own);
            let is_own = |row: &&super::client::RunRow| RunGroup::of(&row.state, row.queue.as_deref()) == own;
            let title = format!("{} ({})", own.title(), runs.iter().filter(is_own).count());
            lines.push(Line::styled(title, theme.style(Tone::Heading)));
        }
        let extras = state.extras.get(&row.run).cloned().unwrap_or_default();
        let cells = cells(row, &extras, state.now);
        let text = list_row(&cells, &one_line(&row.task), width.saturating_sub(2));
        let is_selected = Some(&row.run) == state.selected.as_ref();
        if is_selected {
            at = lines.len();
        }
        let style = theme.style(own.tone());
        let (mark, style) = if is_selected {
            ("> ", style.add_modifier(Modifier::REVERSED))
        } else {
            ("  ", style)
        };
        lines.push(Line::styled(format!("{mark}{text}"), style));
    }
    if state.has_more_runs {
        lines.push(Line::raw(
            "  Older runs are not shown: `ralph status` lists all of a host.",
        ));
    }
    // The selected run is in the middle, and the heading of the first one in sight.
    let height = usize::from(areas.body.height);
    let last = lines.len().saturating_sub(height);
    let first = if at <= 1 {
        0
    } else {
        at.saturating_sub(height / 2).min(last)
    };
    let shown: Vec<Line> = lines.into_iter().skip(first).take(height).collect();
    frame.render_widget(Paragraph::new(shown), areas.body);
}

/// The cells that there is room for, and the title.
fn list_row(cells: &[String; 8], task: &str, width: usize) -> String {
    let mut text = String::new();
    for column in columns_for(width + 2) {
        let columns = COLUMNS[*column].1;
        let cell = cut(&cells[*column], columns - 1);
        let padding = columns.saturating_sub(Span::raw(cell.as_str()).width());
        text.push_str(&cell);
        text.push_str(&" ".repeat(padding));
    }
    text.push_str(task);
    cut(&text, width)
}

fn draw_run(frame: &mut Frame, areas: &Areas, open: &OpenRun, theme: Theme) {
    let mut tabs = Vec::new();
    for tab in RunTab::ALL {
        let (text, style) = if tab == open.tab {
            let style = Style::new().add_modifier(Modifier::REVERSED);
            (format!("[{}]", tab.title()), style)
        } else {
            (format!(" {} ", tab.title()), Style::new())
        };
        tabs.push(Span::styled(text, style));
    }
    tabs.push(Span::styled(position(open), theme.style(Tone::Faint)));
    frame.render_widget(Line::from(tabs), areas.head);
    let text = match (open.view(), open.tab) {
        (None, _) => "Loading ...",
        (Some(view), RunTab::Log) if view.is_empty() && !open.search.is_empty() => "No line has this text.",
        (Some(view), RunTab::Log) if view.is_empty() => "Nothing is logged yet.",
        (Some(view), RunTab::Diff) if view.is_empty() => {
            "No changes yet: they appear after the first iteration."
        }
        (Some(view), _) => return draw_text(frame, areas.body, view, theme),
    };
    frame.render_widget(Paragraph::new(text), areas.body);
}

fn draw_text(frame: &mut Frame, area: Rect, view: &TextView, theme: Theme) {
    let lines: Vec<Line> = view.shown().iter().map(|line| theme.line(line)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_help(frame: &mut Frame, areas: &Areas, help: &TextView, theme: Theme) {
    let (last, all) = help.position();
    let head = format!("Keys  {last}/{all}");
    frame.render_widget(Line::styled(head, theme.style(Tone::Faint)), areas.head);
    draw_text(frame, areas.body, help, theme);
}

/// Where in a text the view is.
fn position(open: &OpenRun) -> String {
    let Some(view) = open.view() else {
        return String::new();
    };
    let (last, all) = view.position();
    let text = format!("  {last}/{all}");
    if open.tab != RunTab::Log {
        return text;
    }
    let follows = if view.follows() {
        "following"
    } else {
        "(End follows)"
    };
    let newest = if open.log_has_earlier {
        ", newest lines"
    } else {
        ""
    };
    let search = match open.search.as_str() {
        "" => String::new(),
        search => format!(", with `{search}`"),
    };
    format!("{text} {follows}{newest}{search}")
}

/// The rows above the keys: what is typed, what a request came to, or why nothing is new.
fn status_lines(state: &WatchState, width: usize) -> Vec<ToneLine> {
    let run = state.target().map_or_else(String::new, |(run, ..)| run);
    let (tone, text) = match (&state.mode, &state.status, &state.trouble) {
        (InputMode::Type { prompt, text }, ..) => {
            let prompt = match prompt {
                Prompt::Note => format!("Note for {run}: "),
                Prompt::Search => "Search the log: ".to_owned(),
                Prompt::Sign(parts) => match parts.len() {
                    0 => "Sign 1/3, its name: ".to_owned(),
                    1 => "Sign 2/3, when to think of it: ".to_owned(),
                    _ => "Sign 3/3, what to do then: ".to_owned(),
                },
            };
            let prompt = cut(&prompt, width / 2);
            let room = width.saturating_sub(Span::raw(prompt.as_str()).width() + 1);
            return vec![ToneLine::new(
                Tone::Plain,
                format!("{prompt}{}", tail(text, room)),
            )];
        }
        (InputMode::ConfirmStop, ..) => (Tone::Notice, format!("Stop run {run} now? y/n")),
        (_, Some(status), _) if status.is_error => (Tone::Bad, status.text.clone()),
        (_, Some(status), _) => (Tone::Good, status.text.clone()),
        (_, None, Some(trouble)) => (Tone::Bad, format!("{trouble} Trying again.")),
        (_, None, None) => return Vec::new(),
    };
    let mut view = TextView::default();
    view.resize(width, MOST_STATUS);
    view.replace(vec![ToneLine::new(tone, text)]);
    view.shown().to_vec()
}

/// The keys that can be used now, as many as fit.
fn key_line(state: &WatchState, width: usize) -> String {
    let keys: &[&str] = match (&state.mode, &state.open) {
        (InputMode::Help, _) => &["up down: scroll", "other keys: back"],
        (InputMode::Type { .. }, _) => &["Enter: send", "Esc: cancel"],
        (InputMode::ConfirmStop, _) => &["y: stop", "n: go on"],
        (InputMode::Browse, None) => &[
            "?: help",
            "q: quit",
            "Enter: open",
            "p: pause/resume",
            "r: rotate",
            "n: note",
            "s: sign",
            "x: stop",
        ],
        (InputMode::Browse, Some(_)) => &[
            "?: help",
            "q: back",
            "Tab: next",
            "p: pause/resume",
            "r: rotate",
            "n: note",
            "s: sign",
            "x: stop",
            "/: search",
        ],
    };
    let mut text = String::new();
    for key in keys {
        let next = if text.is_empty() {
            (*key).to_owned()
        } else {
            format!("{text}  {key}")
        };
        if Span::raw(next.as_str()).width() > width {
            break;
        }
        text = next;
    }
    text
}
