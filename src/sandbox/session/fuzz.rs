//! The fuzz body of what the guest sends: the frames of a session, of the relay and of the network holder.

use crate::guest::frame::{Frame, FrameDecoder, FrameError};
use crate::guest::holder_protocol::{self, HolderRequest};
use crate::guest::message::{Channel, FromGuest, ToGuest};
use crate::guest::relay_protocol::RelayFrame;

use super::router::{GuestReply, MessageRouter};

/// The window of the call, in bytes. Smaller than that of a session, so that inputs can exceed it.
const SMALL_WINDOW: usize = 64;

/// A stream of frames.
pub(crate) fn session_frames(bytes: &[u8]) {
    decodes_in_pieces(bytes, FrameDecoder::default);
    decodes_in_pieces(bytes, RelayFrame::decoder);
    is_encoded_again(bytes, FrameDecoder::default(), |frame, out| {
        FromGuest::decode(frame)?.append_to(frame.id, out)
    });
    is_encoded_again(bytes, FrameDecoder::default(), |frame, out| {
        ToGuest::decode(frame)?.append_to(frame.id, out)
    });
    is_encoded_again(bytes, RelayFrame::decoder(), |frame, out| {
        RelayFrame::decode(frame)?.append_to(frame.id, out)
    });
    stays_within_its_window(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        is_holder_text(text);
    }
}

/// The frames are the same whether the bytes arrive at once or in pieces.
fn decodes_in_pieces(bytes: &[u8], decoder: fn() -> FrameDecoder) {
    let whole = decode(decoder(), bytes.chunks(bytes.len().max(1)));
    assert_eq!(decode(decoder(), bytes.chunks(bytes.len() / 3 + 1)), whole);
}

/// Kind, id and payload of a frame.
type OwnedFrame = (u8, u32, Vec<u8>);

fn decode<'a>(
    mut decoder: FrameDecoder,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<OwnedFrame>, FrameError> {
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.buffer().extend_from_slice(piece);
        while let Some(frame) = decoder.next()? {
            frames.push((frame.kind, frame.id, frame.payload.to_vec()));
        }
    }
    Ok(frames)
}

/// A message that is decoded and encoded has the same bytes: no two frames mean the same.
fn is_encoded_again(
    bytes: &[u8],
    mut decoder: FrameDecoder,
    encode: impl Fn(Frame<'_>, &mut Vec<u8>) -> Result<(), FrameError>,
) {
    decoder.buffer().extend_from_slice(bytes);
    while let Ok(Some(frame)) = decoder.next() {
        let (mut sent, mut again) = (Vec::new(), Vec::new());
        assert_eq!(frame.append_to(&mut sent), Ok(()));
        if encode(frame, &mut again).is_ok() {
            assert_eq!(again, sent);
        }
    }
}

/// A guest cannot make a call keep more output than its window.
fn stays_within_its_window(bytes: &[u8]) {
    let (router, _sent) = MessageRouter::new();
    let Ok((_, mut replies)) = router.open_call_within(SMALL_WINDOW) else {
        panic!("a new session has room for a call");
    };
    let mut decoder = FrameDecoder::default();
    decoder.buffer().extend_from_slice(bytes);
    let _ = router.deliver(&mut decoder);
    let mut kept = [0; 2];
    while let Ok(reply) = replies.try_recv() {
        if let GuestReply::Output(channel, output) = reply {
            kept[usize::from(channel == Channel::Stderr)] += output.len();
        }
    }
    assert!(kept.iter().all(|kept| *kept <= SMALL_WINDOW));
}

/// Requests and responses of the network holder mean the same when they are written again.
fn is_holder_text(text: &str) {
    if let Ok(request) = HolderRequest::parse(text) {
        let written = request.to_string();
        assert_eq!(HolderRequest::parse(&written).ok(), Some(request));
    }
    if let Ok(response) = holder_protocol::decode_response(text) {
        assert_eq!(holder_protocol::encode_response(response), text);
    }
}
