//! Routes the messages of one session to the calls they belong to.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::SessionError;
use crate::guest::frame::FrameDecoder;
use crate::guest::message::{Channel, CommandStatus, FromGuest, StartStage, ToGuest, WINDOW};

/// A message of the guest to one call.
#[derive(Debug)]
pub(super) enum GuestReply {
    Output(Channel, Vec<u8>),
    Credit(u32),
    Exit(CommandStatus, bool),
    Failed(StartStage, i32),
    AllEnded,
}

/// Routes the messages of one session. It never waits: the credit of each stream bounds how many bytes are in transit.
#[derive(Debug)]
pub(super) struct MessageRouter {
    state: Mutex<RouterState>,
    outgoing: UnboundedSender<Vec<u8>>,
}

#[derive(Debug)]
enum RouterState {
    Open {
        calls: HashMap<u32, OpenCall>,
        last_id: u32,
    },
    Closed(SessionError),
}

/// A call that is waiting for messages.
#[derive(Debug)]
struct OpenCall {
    replies: UnboundedSender<GuestReply>,
    stdout_window: usize,
    stderr_window: usize,
}

impl OpenCall {
    fn window(&mut self, channel: Channel) -> &mut usize {
        match channel {
            Channel::Stdout => &mut self.stdout_window,
            Channel::Stderr => &mut self.stderr_window,
        }
    }
}

impl MessageRouter {
    /// Also returns the frames to send to the guest.
    pub(super) fn new() -> (Self, UnboundedReceiver<Vec<u8>>) {
        let (outgoing, sent) = unbounded_channel();
        let state = RouterState::Open {
            calls: HashMap::new(),
            last_id: 0,
        };
        let router = Self {
            state: Mutex::new(state),
            outgoing,
        };
        (router, sent)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state(), RouterState::Open { .. })
    }

    /// Opens a call under a new id.
    pub(super) fn open_call(&self) -> Result<(u32, UnboundedReceiver<GuestReply>), SessionError> {
        match &mut *self.state() {
            RouterState::Closed(reason) => Err(reason.clone()),
            RouterState::Open { calls, last_id } => {
                let id = last_id
                    .checked_add(1)
                    .ok_or(SessionError::protocol("the session has no call ids left"))?;
                *last_id = id;
                let (sender, replies) = unbounded_channel();
                let call = OpenCall {
                    replies: sender,
                    stdout_window: WINDOW,
                    stderr_window: WINDOW,
                };
                calls.insert(id, call);
                Ok((id, replies))
            }
        }
    }

    /// Closes a call. Further messages of the guest to it are dropped.
    pub(super) fn close_call(&self, id: u32) {
        if let RouterState::Open { calls, .. } = &mut *self.state() {
            calls.remove(&id);
        }
    }

    /// Sends frames to the guest. If the session is closed, the receiver of the call ends.
    pub(super) fn send(&self, frames: Vec<u8>) {
        let _ = self.outgoing.send(frames);
    }

    /// Allows the guest to send so many more bytes.
    pub(super) fn grant(&self, id: u32, channel: Channel, bytes: usize) -> Result<(), SessionError> {
        if let RouterState::Open { calls, .. } = &mut *self.state()
            && let Some(call) = calls.get_mut(&id)
        {
            *call.window(channel) += bytes;
        }
        let mut frame = Vec::new();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        ToGuest::Credit(channel, bytes).append_to(id, &mut frame)?;
        self.send(frame);
        Ok(())
    }

    /// Delivers all messages in the decoder. Fails if the guest sends more than it has credit for.
    pub(super) fn deliver(&self, decoder: &mut FrameDecoder) -> Result<(), SessionError> {
        while let Some(frame) = decoder.next()? {
            let (id, message) = (frame.id, FromGuest::decode(frame)?);
            let RouterState::Open { calls, .. } = &mut *self.state() else {
                return Ok(());
            };
            let Some(call) = calls.get_mut(&id) else { continue };
            if let FromGuest::Output(channel, bytes) = message {
                let window = call.window(channel);
                *window = window.checked_sub(bytes.len()).ok_or(SessionError::protocol(
                    "the guest sent more than its credit allows",
                ))?;
            }
            // The receiver of a dropped call is gone.
            let _ = call.replies.send(to_reply(message)?);
        }
        Ok(())
    }

    /// Closes the session for all calls. The first reason is kept.
    pub(super) fn close(&self, reason: SessionError) {
        let mut state = self.state();
        if let RouterState::Open { .. } = *state {
            *state = RouterState::Closed(reason);
        }
    }

    /// Why the session was closed.
    pub(super) fn close_reason(&self) -> SessionError {
        match &*self.state() {
            RouterState::Closed(reason) => reason.clone(),
            RouterState::Open { .. } => SessionError::protocol("the call was closed"),
        }
    }

    fn state(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_reply(message: FromGuest<'_>) -> Result<GuestReply, SessionError> {
    Ok(match message {
        FromGuest::Hello(_) => return Err(SessionError::protocol("the guest sent a second hello")),
        FromGuest::Output(channel, bytes) => GuestReply::Output(channel, bytes.to_owned()),
        FromGuest::Credit(bytes) => GuestReply::Credit(bytes),
        FromGuest::Exit { status, streams_held } => GuestReply::Exit(status, streams_held),
        FromGuest::Failed(stage, errno) => GuestReply::Failed(stage, errno),
        FromGuest::AllEnded => GuestReply::AllEnded,
    })
}
