//! What the view shows, and how keys and news change it. No I/O.

use std::collections::HashMap;

use jiff::Timestamp;

use super::client::{MOST_LINES, RunRow, RunRows, WatchedDiff, WatchedLogPage};
use super::keys::help;
use super::overview::{RunExtras, RunGroup, RunOverview};
use super::text_view::{TextView, Tone, ToneLine};

/// How many lines of a diff are shown.
const DIFF_LINES: usize = 20_000;

/// A page about a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunTab {
    #[default]
    Overview,
    Log,
    Diff,
}

impl RunTab {
    pub(super) const ALL: [Self; 3] = [Self::Overview, Self::Log, Self::Diff];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "1 Overview",
            Self::Log => "2 Log",
            Self::Diff => "3 Diff",
        }
    }
}

/// What is fetched for the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    /// The run that is open; `None` for the list.
    pub(super) run: Option<String>,
    pub(super) tab: RunTab,
    /// Only lines of the log with this text.
    pub(super) search: String,
}

/// What was fetched.
#[derive(Debug)]
pub(super) enum WatchNews {
    Runs(RunRows),
    Extras(String, RunExtras),
    Overview(Box<RunOverview>),
    /// Lines of the log: the last ones, or those that were added since.
    Log {
        watched: Watched,
        page: WatchedLogPage,
        is_first: bool,
    },
    Diff(String, WatchedDiff),
    /// The source answered again.
    Reached,
    /// The source did not answer, or refused to. It is asked again.
    Failed(String),
    /// What came of a request of this person.
    Requested(Result<String, String>),
}

/// What is typed at the bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Note,
    /// The parts of a sign that are typed already: its name, then its trigger.
    Sign(Vec<String>),
    Search,
}

/// What keys are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InputMode {
    Browse,
    Type { prompt: Prompt, text: String },
    ConfirmStop,
    Help,
}

/// A line for the person: the result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusText {
    pub(super) is_error: bool,
    pub(super) text: String,
}

/// A run that is open.
#[derive(Debug)]
pub(super) struct OpenRun {
    pub(super) id: String,
    pub(super) tab: RunTab,
    pub(super) search: String,
    pub(super) overview: Option<RunOverview>,
    pub(super) overview_view: TextView,
    /// `None` until it was fetched.
    pub(super) log: Option<TextView>,
    pub(super) log_has_earlier: bool,
    pub(super) diff: Option<TextView>,
}

impl OpenRun {
    fn new(id: String) -> Self {
        Self {
            id,
            tab: RunTab::default(),
            search: String::new(),
            overview: None,
            overview_view: TextView::default(),
            log: None,
            log_has_earlier: false,
            diff: None,
        }
    }

    /// The text of the tab that is shown, if it was fetched.
    pub(super) fn view(&self) -> Option<&TextView> {
        match self.tab {
            RunTab::Overview => self.overview.as_ref().map(|_| &self.overview_view),
            RunTab::Log => self.log.as_ref(),
            RunTab::Diff => self.diff.as_ref(),
        }
    }

    pub(super) fn view_mut(&mut self) -> Option<&mut TextView> {
        match self.tab {
            RunTab::Overview => Some(&mut self.overview_view),
            RunTab::Log => self.log.as_mut(),
            RunTab::Diff => self.diff.as_mut(),
        }
    }
}

/// All that the view shows.
#[derive(Debug)]
pub(super) struct WatchState {
    /// What is watched, for people.
    pub(super) source: String,
    /// By group, newest first. `None` until they were fetched.
    pub(super) runs: Option<Vec<RunRow>>,
    pub(super) has_more_runs: bool,
    pub(super) extras: HashMap<String, RunExtras>,
    pub(super) selected: Option<String>,
    pub(super) open: Option<OpenRun>,
    pub(super) mode: InputMode,
    pub(super) status: Option<StatusText>,
    /// Why the source does not answer.
    pub(super) trouble: Option<String>,
    pub(super) now: Timestamp,
    /// The columns and rows of the text of a run.
    pub(super) body: (usize, usize),
    pub(super) help: TextView,
}

impl WatchState {
    /// The view of a run, or of the list of all.
    pub(super) fn new(source: &str, run: Option<String>, now: Timestamp) -> Self {
        Self {
            source: source.to_owned(),
            runs: None,
            has_more_runs: false,
            extras: HashMap::new(),
            selected: run.clone(),
            open: run.map(OpenRun::new),
            mode: InputMode::Browse,
            status: None,
            trouble: None,
            now,
            body: (80, 20),
            help: help(),
        }
    }

    /// What to fetch.
    pub(super) fn watched(&self) -> Watched {
        match &self.open {
            None => Watched::default(),
            Some(open) => Watched {
                run: Some(open.id.clone()),
                tab: open.tab,
                search: open.search.clone(),
            },
        }
    }

    /// Takes the columns and rows that the text of a run has now.
    pub(super) fn resize(&mut self, width: usize, height: usize) {
        let has_other_width = self.body.0 != width;
        self.body = (width, height);
        self.help.resize(width, height);
        let Some(open) = &mut self.open else {
            return;
        };
        if has_other_width && let Some(overview) = &open.overview {
            open.overview_view.replace(overview.lines(width));
        }
        let views = [
            Some(&mut open.overview_view),
            open.log.as_mut(),
            open.diff.as_mut(),
        ];
        for view in views.into_iter().flatten() {
            view.resize(width, height);
        }
    }

    /// Takes what was fetched. What is about another run than the open one is late, and dropped.
    pub(super) fn update(&mut self, news: WatchNews) {
        match news {
            WatchNews::Runs(rows) => self.update_runs(rows),
            WatchNews::Extras(run, extras) => {
                self.extras.insert(run, extras);
            }
            WatchNews::Overview(overview) => self.update_overview(*overview),
            WatchNews::Log {
                watched,
                page,
                is_first,
            } => self.update_log(&watched, &page, is_first),
            WatchNews::Diff(run, diff) => self.update_diff(&run, diff),
            WatchNews::Reached => self.trouble = None,
            WatchNews::Failed(reason) => self.trouble = Some(reason),
            WatchNews::Requested(result) => {
                let is_error = result.is_err();
                let text = result.unwrap_or_else(|reason| reason);
                self.status = Some(StatusText { is_error, text });
            }
        }
    }

    fn update_runs(&mut self, rows: RunRows) {
        let mut runs = rows.runs;
        // Stable, so that the newest stays first.
        runs.sort_by_key(|row| RunGroup::of(&row.state, row.queue.as_deref()));
        let is_there = |id: &String| runs.iter().any(|row| row.run == *id);
        if !self.selected.as_ref().is_some_and(is_there) {
            self.selected = runs.first().map(|row| row.run.clone());
        }
        self.extras.retain(|id, _| is_there(id));
        self.has_more_runs = rows.next.is_some();
        self.runs = Some(runs);
    }

    fn update_overview(&mut self, overview: RunOverview) {
        let (width, height) = self.body;
        self.extras
            .insert(overview.details.run.clone(), overview.extras());
        if let Some(open) = self.open.as_mut().filter(|open| open.id == overview.details.run) {
            open.overview_view.resize(width, height);
            open.overview_view.replace(overview.lines(width));
            open.overview = Some(overview);
        }
    }

    fn update_log(&mut self, watched: &Watched, page: &WatchedLogPage, is_first: bool) {
        let (width, height) = self.body;
        let is_meant =
            |open: &&mut OpenRun| Some(&open.id) == watched.run.as_ref() && open.search == watched.search;
        let Some(open) = self.open.as_mut().filter(is_meant) else {
            return;
        };
        let lines = page.lines.iter();
        let lines = lines.map(|line| ToneLine::new(Tone::of_log(&line.style), line.shown()));
        if is_first {
            let mut view = TextView::following();
            view.resize(width, height);
            open.log = Some(view);
            open.log_has_earlier = page.earlier.is_some();
        }
        if let Some(view) = &mut open.log {
            view.append(lines.collect(), MOST_LINES);
        }
    }

    fn update_diff(&mut self, run: &str, diff: WatchedDiff) {
        let (width, height) = self.body;
        let Some(open) = self.open.as_mut().filter(|open| open.id == run) else {
            return;
        };
        let text = diff.diff.unwrap_or_default();
        let mut all = text.lines();
        let shown = all.by_ref().take(DIFF_LINES);
        let mut lines: Vec<ToneLine> = shown
            .map(|line| ToneLine::new(Tone::of_diff(line), line))
            .collect();
        if diff.is_cut || all.next().is_some() {
            let note = format!("Not all of it is shown: `ralph diff {run}` prints it.");
            lines.push(ToneLine::new(Tone::Notice, note));
        }
        let view = open.diff.get_or_insert_default();
        view.resize(width, height);
        view.replace(lines);
    }

    /// The run that keys are about, and how it stands: its group and its state.
    pub(super) fn target(&self) -> Option<(String, RunGroup, String)> {
        if let Some(open) = &self.open {
            let run = &open.overview.as_ref()?.details;
            let group = RunGroup::of(&run.state, run.queue.as_deref());
            return Some((run.run.clone(), group, run.state.clone()));
        }
        let rows = self.runs.as_ref()?;
        let row = rows.iter().find(|row| Some(&row.run) == self.selected.as_ref())?;
        let group = RunGroup::of(&row.state, row.queue.as_deref());
        Some((row.run.clone(), group, row.state.clone()))
    }

    /// Opens the selected run.
    pub(super) fn open_selected(&mut self) {
        if let Some(id) = self.selected.clone().filter(|_| self.runs.is_some()) {
            let mut open = OpenRun::new(id);
            open.overview_view.resize(self.body.0, self.body.1);
            self.open = Some(open);
        }
    }

    /// Selects another run of the list.
    pub(super) fn select(&mut self, by: isize) {
        let Some(rows) = self.runs.as_ref().filter(|rows| !rows.is_empty()) else {
            return;
        };
        let at = rows
            .iter()
            .position(|row| Some(&row.run) == self.selected.as_ref());
        let at = at.unwrap_or(0).saturating_add_signed(by).min(rows.len() - 1);
        self.selected = Some(rows[at].run.clone());
    }

    pub(super) fn say(&mut self, text: impl Into<String>) {
        let (is_error, text) = (false, text.into());
        self.status = Some(StatusText { is_error, text });
    }
}
