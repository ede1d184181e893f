//! Frames: a byte stream as a sequence of messages. Compiled into ralph and into the guest.

use std::fmt;

/// The length of a header: kind, id and length of the payload.
const HEADER: usize = 9;

/// The longest payload. No program can be started with longer arguments and variables anyway.
pub(crate) const MAX_PAYLOAD: usize = 8 * 1024 * 1024;

/// The capacity that is reserved for each read.
const READ_SIZE: usize = 128 * 1024;

/// A message that is not decoded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    /// The command or request that it belongs to.
    pub(crate) id: u32,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Appends the frame to `out`. Appends nothing if the payload is too long.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (kind, length) = (self.kind, self.payload.len());
        let Some(short) = u32::try_from(length).ok().filter(|_| length <= MAX_PAYLOAD) else {
            return Err(FrameError::TooLong { kind, length });
        };
        out.push(self.kind);
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&short.to_be_bytes());
        out.extend_from_slice(self.payload);
        Ok(())
    }
}

/// A frame that cannot be sent or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    TooLong { kind: u8, length: usize },
    Unknown { kind: u8 },
    Malformed { kind: u8 },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { kind, length } => write!(f, "frame of kind {kind} is too long: {length} bytes"),
            Self::Unknown { kind } => write!(f, "unknown frame kind {kind}"),
            Self::Malformed { kind } => write!(f, "malformed frame of kind {kind}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Decodes frames from bytes that arrive in pieces of any size.
#[derive(Debug)]
pub(crate) struct FrameDecoder {
    buffer: Vec<u8>,
    consumed: usize,
    max_payload: usize,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::with_limit(MAX_PAYLOAD)
    }
}

impl FrameDecoder {
    /// A decoder that refuses longer payloads than this.
    pub(crate) fn with_limit(max_payload: usize) -> Self {
        Self {
            buffer: Vec::new(),
            consumed: 0,
            max_payload,
        }
    }

    /// The buffer to append the next bytes to. The bytes in it must not be changed.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.reserve(READ_SIZE);
        &mut self.buffer
    }

    /// The next frame; `None` if more bytes are needed. After an error the decoder is unusable.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let rest = &self.buffer[self.consumed..];
        let Some((&[kind, i0, i1, i2, i3, l0, l1, l2, l3], rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > self.max_payload {
            return Err(FrameError::TooLong { kind, length });
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        self.consumed += HEADER + length;
        Ok(Some(Frame {
            kind,
            id: u32::from_be_bytes([i0, i1, i2, i3]),
            payload,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Owned = (u8, u32, Vec<u8>);

    fn decode(bytes: &[u8], piece: usize) -> (Vec<Owned>, Option<FrameError>) {
        let (mut decoder, mut frames) = (FrameDecoder::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.buffer().extend_from_slice(piece);
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => frames.push((frame.kind, frame.id, frame.payload.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    proptest! {
        #[test]
        fn frames_are_decoded_from_pieces_of_any_size(
            frames in vec((any::<u8>(), any::<u32>(), vec(any::<u8>(), 0..300)), 0..8),
            piece in 1usize..700,
        ) {
            let mut bytes = Vec::new();
            for (kind, id, payload) in &frames {
                Frame { kind: *kind, id: *id, payload }.append_to(&mut bytes).unwrap();
            }
            prop_assert_eq!(decode(&bytes, piece), (frames, None));
        }

        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..2000), piece in 1usize..700) {
            let (frames, error) = decode(&bytes, piece);
            let read: usize = frames.iter().map(|(_, _, payload)| HEADER + payload.len()).sum();
            prop_assert!(read <= bytes.len());
            let expected = matches!(error, None | Some(FrameError::TooLong { .. }));
            prop_assert!(expected, "{error:?}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_it_is_read() {
        let bytes = [7, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
        let error = FrameError::TooLong {
            kind: 7,
            length: 0xffff_ffff,
        };
        assert_eq!(decode(&bytes, 9), (vec![], Some(error)));
    }

    #[test]
    fn a_payload_beyond_the_limit_is_not_written() {
        let (payload, mut out) = (vec![0; MAX_PAYLOAD + 1], Vec::new());
        let frame = Frame {
            kind: 1,
            id: 1,
            payload: &payload,
        };
        assert!(frame.append_to(&mut out).is_err());
        assert!(out.is_empty());
    }
}
