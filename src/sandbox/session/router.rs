//! Routes the messages of one session to the calls they belong to.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::SessionError;
use crate::guest::frame::{FrameDecoder, FrameError};
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

#[derive(Debug, Default)]
struct RouterState {
    calls: HashMap<u32, OpenCall>,
    last_id: u32,
    /// Why the session was closed. A closed session has no calls.
    closed: Option<SessionError>,
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
        let router = Self {
            state: Mutex::default(),
            outgoing,
        };
        (router, sent)
    }

    pub(super) fn is_open(&self) -> bool {
        self.state().closed.is_none()
    }

    /// Opens a call under a new id.
    pub(super) fn open_call(&self) -> Result<(u32, UnboundedReceiver<GuestReply>), SessionError> {
        self.open_call_within(WINDOW)
    }

    /// Opens a call whose streams begin with a window of this many bytes.
    pub(super) fn open_call_within(
        &self,
        window: usize,
    ) -> Result<(u32, UnboundedReceiver<GuestReply>), SessionError> {
        let mut state = self.state();
        if let Some(reason) = &state.closed {
            return Err(reason.clone());
        }
        let id = state.last_id.checked_add(1);
        let id = id.ok_or(SessionError::protocol("the session has no call ids left"))?;
        state.last_id = id;
        let (sender, replies) = unbounded_channel();
        let call = OpenCall {
            replies: sender,
            stdout_window: window,
            stderr_window: window,
        };
        state.calls.insert(id, call);
        Ok((id, replies))
    }

    /// Closes a call. Further messages of the guest to it are dropped.
    pub(super) fn close_call(&self, id: u32) {
        self.state().calls.remove(&id);
    }

    /// Sends a message to the guest. If the session is closed, the receiver of the call ends.
    pub(super) fn send(&self, id: u32, message: &ToGuest<'_>) -> Result<(), FrameError> {
        let mut frame = Vec::new();
        message.append_to(id, &mut frame)?;
        let _ = self.outgoing.send(frame);
        Ok(())
    }

    /// Allows the guest to send so many more bytes.
    pub(super) fn grant(&self, id: u32, channel: Channel, bytes: usize) -> Result<(), FrameError> {
        if let Some(call) = self.state().calls.get_mut(&id) {
            *call.window(channel) += bytes;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.send(id, &ToGuest::Credit(channel, bytes))
    }

    /// Delivers all messages in the decoder. Fails if the guest sends more than it has credit for.
    pub(super) fn deliver(&self, decoder: &mut FrameDecoder) -> Result<(), SessionError> {
        while let Some(frame) = decoder.next()? {
            let (id, message) = (frame.id, FromGuest::decode(frame)?);
            let mut state = self.state();
            let Some(call) = state.calls.get_mut(&id) else {
                continue;
            };
            let reply = match message {
                FromGuest::Hello(_) => return Err(SessionError::protocol("the guest sent a second hello")),
                FromGuest::Output(channel, bytes) => {
                    let window = call.window(channel);
                    *window = window.checked_sub(bytes.len()).ok_or(SessionError::protocol(
                        "the guest sent more than its credit allows",
                    ))?;
                    GuestReply::Output(channel, bytes.to_owned())
                }
                FromGuest::Credit(bytes) => GuestReply::Credit(bytes),
                FromGuest::Exit { status, streams_held } => GuestReply::Exit(status, streams_held),
                FromGuest::Failed(at, errno) => GuestReply::Failed(at, errno),
                FromGuest::AllEnded => GuestReply::AllEnded,
            };
            // The receiver of a dropped call is gone.
            let _ = call.replies.send(reply);
        }
        Ok(())
    }

    /// Closes the session for all calls. The first reason is kept.
    pub(super) fn close(&self, reason: SessionError) {
        let mut state = self.state();
        state.closed.get_or_insert(reason);
        state.calls.clear();
    }

    /// Why the session was closed.
    pub(super) fn close_reason(&self) -> SessionError {
        let reason = self.state().closed.clone();
        reason.unwrap_or_else(|| SessionError::protocol("the call was closed"))
    }

    fn state(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
