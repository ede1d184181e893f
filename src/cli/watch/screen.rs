//! The terminal around the view: its keys, its size, its signals, and its state before and after.

use std::io;
use std::time::Duration;

use jiff::Timestamp;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::{mpsc, watch};

use super::super::signals::Signals;
use super::super::ui::FullScreen;
use super::super::{CliError, CliExit, CliResult, Context};
use super::client::RunClient;
use super::draw::{Theme, draw, lay_out};
use super::keys::KeyEffect;
use super::poller::{PollTarget, WAITING_NEWS, WatchPoller, request};
use super::state::{WatchNews, WatchState};

/// How often the reader of keys looks whether the view is gone.
const KEY_INTERVAL: Duration = Duration::from_millis(100);

fn terminal_error(error: &io::Error) -> CliError {
    CliError::runtime(format!("cannot use the terminal: {error}"))
        .with_hint("`ralph watch | cat` prints plain lines")
}

/// Shows the view until the person ends it.
pub(super) async fn show(context: &Context, client: RunClient, run: Option<String>) -> CliResult {
    let mut signals = Signals::watch(&context.surroundings().host()).await?;
    let is_plain = context.surroundings().var("NO_COLOR").is_some();
    let theme = Theme { colour: !is_plain };
    let now = || -> Timestamp { context.surroundings().now() };
    let mut state = WatchState::new(client.name(), run, now());
    let target = watch::Sender::new(PollTarget {
        watched: state.watched(),
        round: 0,
    });
    let (news, mut arriving) = mpsc::channel(WAITING_NEWS);
    tokio::spawn(WatchPoller::new(client.clone(), news.clone(), target.subscribe()).run());

    let mut terminal = FullScreen::open().map_err(|error| terminal_error(&error))?;
    let mut events = read_events();
    loop {
        state.now = now();
        show_once(terminal.get(), &mut state, theme).map_err(|error| terminal_error(&error))?;
        tokio::select! {
            event = events.recv() => {
                let lost = || io::Error::other("it sends no more keys");
                let event = event.unwrap_or_else(|| Err(lost())).map_err(|error| terminal_error(&error))?;
                match take(&mut state, &event) {
                    KeyEffect::Nothing => {}
                    KeyEffect::Quit { interrupted: false } => return Ok(CliExit::Success),
                    KeyEffect::Quit { interrupted: true } => return Ok(CliExit::Interrupted),
                    KeyEffect::Request { run, request: wanted } => {
                        tokio::spawn(request(client.clone(), news.clone(), run, wanted));
                    }
                }
            }
            Some(first) = arriving.recv() => {
                let mut next = Some(first);
                while let Some(news) = next {
                    if let WatchNews::Requested(_) = news {
                        target.send_modify(|target| target.round += 1);
                    }
                    state.update(news);
                    next = arriving.try_recv().ok();
                }
            }
            () = signals.next() => return Ok(CliExit::Interrupted),
        }
        target.send_if_modified(|target| {
            let watched = state.watched();
            let changed = target.watched != watched;
            target.watched = watched;
            changed
        });
    }
}

fn show_once(terminal: &mut DefaultTerminal, state: &mut WatchState, theme: Theme) -> io::Result<()> {
    terminal.autoresize()?;
    let size = terminal.size()?;
    lay_out(state, size.width, size.height);
    terminal.draw(|frame| draw(frame, state, theme))?;
    Ok(())
}

fn take(state: &mut WatchState, event: &Event) -> KeyEffect {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => state.press(*key),
        Event::Paste(text) => {
            state.paste(text);
            KeyEffect::Nothing
        }
        _ => KeyEffect::Nothing,
    }
}

/// What the terminal sends. The thread that reads it ends with the receiver.
fn read_events() -> mpsc::Receiver<io::Result<Event>> {
    let (sender, receiver) = mpsc::channel(WAITING_NEWS);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_INTERVAL) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let is_last = event.is_err();
            if sender.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
