//! What each key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::client::WatchRequest;
use super::overview::RunGroup;
use super::state::{InputMode, Prompt, RunTab, WatchState};
use super::text_view::{TextView, Tone, ToneLine};

/// The longest text that can be typed, in bytes.
const LONGEST_INPUT: usize = 4000;

/// What is to be done after a key, besides showing the new state.
#[derive(Debug, PartialEq)]
pub(super) enum KeyEffect {
    Nothing,
    Request {
        run: String,
        request: WatchRequest,
    },
    /// Ends the view. Ctrl-C is an interruption.
    Quit {
        interrupted: bool,
    },
}

/// The keys, and what they do, for the help.
const HELP: [(&str, &str); 14] = [
    ("up down, k j", "select, scroll"),
    ("PgUp PgDn", "a page up, down"),
    ("Home End, g G", "to the start, to the end (follows a log)"),
    ("Enter", "open the run"),
    ("Tab, 1 2 3", "overview, log, diff"),
    ("/", "search the whole log; an empty text ends it"),
    ("p", "pause after this iteration; resume"),
    ("r", "rotate: end this iteration, start the next"),
    ("n", "leave a note for the next iteration"),
    ("s", "add a sign to the guardrails"),
    ("x", "stop now (asks first)"),
    ("Esc, q", "back; q in the list ends"),
    ("Ctrl-C", "end; runs go on"),
    ("?", "this help"),
];

/// The help.
pub(super) fn help() -> TextView {
    let line = |(keys, what): (&str, &str)| ToneLine::new(Tone::Plain, format!("{keys:<14} {what}"));
    let mut view = TextView::default();
    view.replace(HELP.map(line).to_vec());
    view
}

impl WatchState {
    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyEffect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyEffect::Quit { interrupted: true },
                _ => KeyEffect::Nothing,
            };
        }
        self.status = None;
        match std::mem::replace(&mut self.mode, InputMode::Browse) {
            InputMode::Browse => self.browse(key.code),
            InputMode::Help => {
                if scroll(&mut self.help, key.code, false) {
                    self.mode = InputMode::Help;
                }
                KeyEffect::Nothing
            }
            InputMode::ConfirmStop => {
                if let KeyCode::Char('y' | 'Y') = key.code {
                    return self.request(WatchRequest::Stop);
                }
                self.say("Not stopped.");
                KeyEffect::Nothing
            }
            InputMode::Type { prompt, text } => self.type_key(key.code, prompt, text),
        }
    }

    /// Takes a text that was pasted. Only a prompt takes it, as one line.
    pub(super) fn paste(&mut self, pasted: &str) {
        if let InputMode::Type { text, .. } = &mut self.mode {
            let line = crate::text::one_line(pasted);
            let room = LONGEST_INPUT.saturating_sub(text.len());
            let typed = crate::text::first_bytes(&line, room);
            text.extend(typed.chars().filter(|c| is_typed(*c)));
        }
    }

    fn browse(&mut self, code: KeyCode) -> KeyEffect {
        match code {
            KeyCode::Char('?') => self.mode = InputMode::Help,
            KeyCode::Char('p') => return self.pause_or_resume(),
            KeyCode::Char('r') => return self.request(WatchRequest::Rotate),
            KeyCode::Char('n') => self.prompt(Prompt::Note),
            KeyCode::Char('s') => self.prompt(Prompt::Sign(Vec::new())),
            KeyCode::Char('x') if self.target().is_some() => self.mode = InputMode::ConfirmStop,
            KeyCode::Char('q') if self.open.is_none() => return KeyEffect::Quit { interrupted: false },
            KeyCode::Esc | KeyCode::Char('q') => self.open = None,
            _ if self.open.is_some() => self.browse_run(code),
            _ => self.browse_list(code),
        }
        KeyEffect::Nothing
    }

    fn browse_list(&mut self, code: KeyCode) {
        let page = isize::try_from(self.body.1).unwrap_or(isize::MAX);
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::PageUp => self.select(-page),
            KeyCode::PageDown => self.select(page),
            KeyCode::Home | KeyCode::Char('g') => self.select(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.select(isize::MAX),
            KeyCode::Enter => self.open_selected(),
            _ => {}
        }
    }

    fn browse_run(&mut self, code: KeyCode) {
        let Some(open) = &mut self.open else {
            return;
        };
        match code {
            KeyCode::Char('1') => open.tab = RunTab::Overview,
            KeyCode::Char('2') => open.tab = RunTab::Log,
            KeyCode::Char('3') => open.tab = RunTab::Diff,
            KeyCode::Tab => open.tab = neighbour(open.tab, 1),
            KeyCode::BackTab => open.tab = neighbour(open.tab, RunTab::ALL.len() - 1),
            KeyCode::Char('/') => {
                open.tab = RunTab::Log;
                self.prompt(Prompt::Search);
            }
            _ => {
                let follows = open.tab == RunTab::Log;
                if let Some(view) = open.view_mut() {
                    scroll(view, code, follows);
                }
            }
        }
    }

    fn request(&self, request: WatchRequest) -> KeyEffect {
        match self.target() {
            Some((run, ..)) => KeyEffect::Request { run, request },
            None => KeyEffect::Nothing,
        }
    }

    fn pause_or_resume(&mut self) -> KeyEffect {
        match self.target() {
            None => return KeyEffect::Nothing,
            Some((run, RunGroup::Running, _)) => {
                return KeyEffect::Request {
                    run,
                    request: WatchRequest::Pause,
                };
            }
            Some((run, RunGroup::Queued, _)) => {
                self.say(format!(
                    "Run {run} is queued: a worker takes it (`ralph worker`, `ralph serve`)."
                ));
            }
            Some((run, RunGroup::Done, state)) if state == "done" => {
                self.say(format!("Run {run} is done: there is nothing to resume."));
            }
            Some((run, ..)) => {
                return KeyEffect::Request {
                    run,
                    request: WatchRequest::Resume,
                };
            }
        }
        KeyEffect::Nothing
    }

    fn prompt(&mut self, prompt: Prompt) {
        if self.target().is_some() {
            let text = String::new();
            self.mode = InputMode::Type { prompt, text };
        }
    }

    fn type_key(&mut self, code: KeyCode, prompt: Prompt, mut text: String) -> KeyEffect {
        match code {
            KeyCode::Esc => return KeyEffect::Nothing,
            KeyCode::Enter => return self.typed(prompt, text.trim()),
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(c) if is_typed(c) && text.len() < LONGEST_INPUT => text.push(c),
            _ => {}
        }
        self.mode = InputMode::Type { prompt, text };
        KeyEffect::Nothing
    }

    /// Takes a text that was typed to its end.
    fn typed(&mut self, prompt: Prompt, text: &str) -> KeyEffect {
        let text = text.to_owned();
        match prompt {
            Prompt::Search => {
                if let Some(open) = self.open.as_mut().filter(|open| open.search != text) {
                    open.search = text;
                    open.log = None;
                }
            }
            Prompt::Note | Prompt::Sign(_) if text.is_empty() => {
                self.say("Nothing was sent: the text is empty.");
            }
            Prompt::Note => return self.request(WatchRequest::Note(text)),
            Prompt::Sign(mut parts) => {
                if let [name, trigger] = parts.as_slice() {
                    return self.request(WatchRequest::Sign {
                        name: name.clone(),
                        trigger: trigger.clone(),
                        instruction: text,
                    });
                }
                parts.push(text);
                self.prompt(Prompt::Sign(parts));
            }
        }
        KeyEffect::Nothing
    }
}

/// Scrolls a text. Returns whether the key is one for that.
fn scroll(view: &mut TextView, code: KeyCode, follows: bool) -> bool {
    // One row of the page before stays in sight.
    let page = isize::try_from(view.height().saturating_sub(1).max(1)).unwrap_or(isize::MAX);
    match code {
        KeyCode::Up | KeyCode::Char('k') => view.scroll(-1, follows),
        KeyCode::Down | KeyCode::Char('j') => view.scroll(1, follows),
        KeyCode::PageUp => view.scroll(-page, follows),
        KeyCode::PageDown | KeyCode::Char(' ') => view.scroll(page, follows),
        KeyCode::Home | KeyCode::Char('g') => view.go_to_start(),
        KeyCode::End | KeyCode::Char('G') => view.go_to_end(follows),
        _ => return false,
    }
    true
}

/// Whether a character can be a part of what a person types.
fn is_typed(c: char) -> bool {
    crate::text::visible(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8() && !c.is_control()
}

fn neighbour(tab: RunTab, by: usize) -> RunTab {
    let at = RunTab::ALL.iter().position(|one| *one == tab).unwrap_or(0);
    RunTab::ALL[(at + by) % RunTab::ALL.len()]
}
