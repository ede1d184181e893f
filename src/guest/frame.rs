//! Frames: how a stream of bytes is cut into messages. Compiled into ralph and into the guest.

use std::fmt;

/// What stands before each payload: its kind, whose it is, how long it is.
const HEADER: usize = 9;

/// The longest payload. Arguments and variables that are longer could not be given to a program either.
pub(crate) const LONGEST: usize = 8 * 1024 * 1024;

/// How much is read at once.
const ROOM: usize = 128 * 1024;

/// One message before anybody looked into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    /// The command, or the request, that it is about.
    pub(crate) id: u32,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Puts the frame at the end of `out`; an error, and nothing put there, when its payload is too long.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let too_long = FrameError::TooLong {
            kind: self.kind,
            length: self.payload.len(),
        };
        let length = u32::try_from(self.payload.len()).map_err(|_| too_long)?;
        if self.payload.len() > LONGEST {
            return Err(too_long);
        }
        out.push(self.kind);
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(self.payload);
        Ok(())
    }
}

/// What is wrong with what the other end sent, or was about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    TooLong { kind: u8, length: usize },
    Unknown { kind: u8 },
    Malformed { kind: u8 },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { kind, length } => write!(f, "a frame of kind {kind} has {length} bytes"),
            Self::Unknown { kind } => write!(f, "there are no frames of kind {kind}"),
            Self::Malformed { kind } => write!(f, "a frame of kind {kind} cannot be read"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Finds the frames in bytes that arrive in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    taken: usize,
}

impl Decoder {
    /// Where to put the next bytes: at the end. What is there already stays as it is.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.reserve(ROOM);
        &mut self.buffer
    }

    /// The next frame; `None` until more bytes are there. After an error there is nothing more to be had.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let rest = &self.buffer[self.taken..];
        let Some((&[kind, i0, i1, i2, i3, l0, l1, l2, l3], rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > LONGEST {
            return Err(FrameError::TooLong { kind, length });
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        self.taken += HEADER + length;
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
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.room().extend_from_slice(piece);
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
        fn what_was_written_is_read_whatever_the_pieces(
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
        fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..2000), piece in 1usize..700) {
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
        let (payload, mut out) = (vec![0; LONGEST + 1], Vec::new());
        let frame = Frame {
            kind: 1,
            id: 1,
            payload: &payload,
        };
        assert!(frame.append_to(&mut out).is_err());
        assert!(out.is_empty());
    }
}
