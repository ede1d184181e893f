//! Who runs a command over a session, and what is on its way to the guest.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::SessionError;
use crate::guest::frame::FrameDecoder;
use crate::guest::message::{Channel, CommandStatus, FromGuest, StartStage, ToGuest, WINDOW};

/// What a call hears from the guest.
#[derive(Debug)]
pub(super) enum Heard {
    Output(Channel, Vec<u8>),
    Credit(u32),
    Exit(CommandStatus, bool),
    Failed(StartStage, i32),
    AllEnded,
}

/// Brings messages of one stream to the calls they are for. Nothing here waits: how much is under way is bounded by the
/// credit that each stream of each command has.
#[derive(Debug)]
pub(super) struct Exchange {
    state: Mutex<State>,
    outgoing: UnboundedSender<Vec<u8>>,
}

#[derive(Debug)]
enum State {
    Open { calls: HashMap<u32, Line>, last: u32 },
    Closed(SessionError),
}

/// The way to one call.
#[derive(Debug)]
struct Line {
    heard: UnboundedSender<Heard>,
    stdout_window: usize,
    stderr_window: usize,
}

impl Line {
    fn window(&mut self, channel: Channel) -> &mut usize {
        match channel {
            Channel::Stdout => &mut self.stdout_window,
            Channel::Stderr => &mut self.stderr_window,
        }
    }
}

impl Exchange {
    /// Also what is to be sent to the guest, in this order.
    pub(super) fn new() -> (Self, UnboundedReceiver<Vec<u8>>) {
        let (outgoing, sent) = unbounded_channel();
        let state = State::Open {
            calls: HashMap::new(),
            last: 0,
        };
        let exchange = Self {
            state: Mutex::new(state),
            outgoing,
        };
        (exchange, sent)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open { .. })
    }

    /// Opens a line for one call, under an id that none had before.
    pub(super) fn connect(&self) -> Result<(u32, UnboundedReceiver<Heard>), SessionError> {
        match &mut *self.state() {
            State::Closed(why) => Err(why.clone()),
            State::Open { calls, last } => {
                let id = last
                    .checked_add(1)
                    .ok_or(SessionError::nonsense("there are no ids left"))?;
                *last = id;
                let (sender, heard) = unbounded_channel();
                let line = Line {
                    heard: sender,
                    stdout_window: WINDOW,
                    stderr_window: WINDOW,
                };
                calls.insert(id, line);
                Ok((id, heard))
            }
        }
    }

    /// Closes a line. What the guest still says about it goes nowhere.
    pub(super) fn hang_up(&self, id: u32) {
        if let State::Open { calls, .. } = &mut *self.state() {
            calls.remove(&id);
        }
    }

    /// Sends frames to the guest. When the session is closed, that is heard on the line.
    pub(super) fn send(&self, frames: Vec<u8>) {
        let _ = self.outgoing.send(frames);
    }

    /// Lets the guest send so many more bytes.
    pub(super) fn grant(&self, id: u32, channel: Channel, bytes: usize) -> Result<(), SessionError> {
        if let State::Open { calls, .. } = &mut *self.state()
            && let Some(line) = calls.get_mut(&id)
        {
            *line.window(channel) += bytes;
        }
        let mut frame = Vec::new();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        ToGuest::Credit(channel, bytes).append_to(id, &mut frame)?;
        self.send(frame);
        Ok(())
    }

    /// Hands out all messages that are there. A guest that sends more than it may is not listened to any more.
    pub(super) fn deliver(&self, decoder: &mut FrameDecoder) -> Result<(), SessionError> {
        while let Some(frame) = decoder.next()? {
            let (id, message) = (frame.id, FromGuest::decode(frame)?);
            let State::Open { calls, .. } = &mut *self.state() else {
                return Ok(());
            };
            let Some(line) = calls.get_mut(&id) else { continue };
            if let FromGuest::Output(channel, bytes) = message {
                let window = line.window(channel);
                *window = window
                    .checked_sub(bytes.len())
                    .ok_or(SessionError::nonsense("the guest sent more than it may"))?;
            }
            // A call that was dropped is about to hang up.
            let _ = line.heard.send(heard(message)?);
        }
        Ok(())
    }

    /// Ends the session for everyone. The first reason stays.
    pub(super) fn close(&self, why: SessionError) {
        let mut state = self.state();
        if let State::Open { .. } = *state {
            *state = State::Closed(why);
        }
    }

    /// Why there is nothing more to be heard.
    pub(super) fn why_closed(&self) -> SessionError {
        match &*self.state() {
            State::Closed(why) => why.clone(),
            State::Open { .. } => SessionError::nonsense("the line was cut"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn heard(message: FromGuest<'_>) -> Result<Heard, SessionError> {
    Ok(match message {
        FromGuest::Hello(_) => return Err(SessionError::nonsense("the guest said hello twice")),
        FromGuest::Output(channel, bytes) => Heard::Output(channel, bytes.to_owned()),
        FromGuest::Credit(bytes) => Heard::Credit(bytes),
        FromGuest::Exit { status, streams_held } => Heard::Exit(status, streams_held),
        FromGuest::Failed(stage, errno) => Heard::Failed(stage, errno),
        FromGuest::AllEnded => Heard::AllEnded,
    })
}
