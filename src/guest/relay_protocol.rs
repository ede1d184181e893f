//! The protocol between ralph and the relay of a sealed network: many connections over one stream of bytes. Compiled into
//! ralph and into the guest.
//!
//! The relay numbers connections upwards from 1 and uses no number twice. After [`RelayFrame::Close`] or
//! [`RelayFrame::Reset`], or after [`RelayFrame::End`] in both directions, a connection is over; frames about it that are
//! still in flight are ignored. Each end sends data only as far as the other one has given it credit, so that the memory
//! of both is bounded. A frame that breaks a rule ends the relay.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::frame::{Frame, FrameDecoder, FrameError};

/// The longest payload of a frame: a piece of data, or a request or response of the holder protocol.
const MAX_PAYLOAD: usize = 64 * 1024;

/// The longest piece of data in one frame.
pub(crate) const PIECE: usize = MAX_PAYLOAD;

/// The most connections at a time. It is more than the gateway serves: one that it evicts is closed a moment later.
pub(crate) const MAX_CONNECTIONS: usize = 2048;

/// How many bytes of a new connection may be in flight in one direction.
pub(crate) const FIRST_WINDOW: usize = 16 * 1024;

/// How many bytes of a busy connection may be in flight in one direction.
pub(crate) const FULL_WINDOW: usize = 256 * 1024;

/// How many connections may have the full window at a time.
const FULL_WINDOWS: usize = 64;

/// Above this many bytes that the stream has not accepted yet, neither end takes more data from its connections.
pub(crate) const MAX_UNSENT: usize = 512 * 1024;

/// A message between ralph and the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayFrame<'a> {
    /// The first frame from the relay: the version of the guest.
    Hello(u64),
    /// To the relay: a request of the holder protocol. From it: the response. One request at a time.
    Control(&'a [u8]),
    /// From the relay: it accepted a connection. `listener` is the position in the request to listen.
    Opened {
        listener: u16,
        destination: SocketAddrV4,
    },
    /// The next piece of data.
    Data(&'a [u8]),
    /// Allows the other end to send this many more bytes.
    Credit(u32),
    /// There is no more data in this direction.
    End,
    /// To the relay: close the connection once all data is delivered.
    Close,
    /// The connection is broken, or is to be.
    Reset,
    /// From the relay: a datagram. To it: an answer. The id is the position of the listener.
    Datagram(Datagram<'a>),
}

/// A datagram of the sandbox, or an answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    /// Its address in the sandbox.
    pub(crate) client: SocketAddrV4,
    /// The address that the client sent it to, and that the answer comes from.
    pub(crate) server: Ipv4Addr,
    pub(crate) bytes: &'a [u8],
}

const HELLO: u8 = 32;
const CONTROL: u8 = 33;
const OPENED: u8 = 34;
const DATA: u8 = 35;
const CREDIT: u8 = 36;
const END: u8 = 37;
const CLOSE: u8 = 38;
const RESET: u8 = 39;
const DATAGRAM: u8 = 40;

impl<'a> RelayFrame<'a> {
    /// A decoder for frames of this protocol.
    pub(crate) fn decoder() -> FrameDecoder {
        FrameDecoder::with_limit(MAX_PAYLOAD)
    }

    /// Appends the frame to `out`. Appends nothing if it is too long.
    pub(crate) fn append_to(&self, id: u32, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (kind, payload): (u8, Cow<'_, [u8]>) = match self {
            Self::Hello(version) => (HELLO, version.to_be_bytes().to_vec().into()),
            Self::Control(text) => (CONTROL, (*text).into()),
            Self::Opened {
                listener,
                destination,
            } => {
                let address = encode_address(*destination);
                (OPENED, [&listener.to_be_bytes()[..], &address].concat().into())
            }
            Self::Data(bytes) => (DATA, (*bytes).into()),
            Self::Credit(bytes) => (CREDIT, bytes.to_be_bytes().to_vec().into()),
            Self::End => (END, Cow::default()),
            Self::Close => (CLOSE, Cow::default()),
            Self::Reset => (RESET, Cow::default()),
            Self::Datagram(datagram) => (DATAGRAM, datagram.encode().into()),
        };
        if payload.len() > MAX_PAYLOAD {
            let length = payload.len();
            return Err(FrameError::TooLong { kind, length });
        }
        let payload = &payload;
        Frame { kind, id, payload }.append_to(out)
    }

    /// Decodes a frame. Missing and trailing bytes are errors.
    pub(crate) fn decode(frame: Frame<'a>) -> Result<Self, FrameError> {
        let Frame { kind, payload, .. } = frame;
        let decoded = match kind {
            HELLO => payload
                .try_into()
                .ok()
                .map(|version| Self::Hello(u64::from_be_bytes(version))),
            CONTROL => Some(Self::Control(payload)),
            OPENED => decode_opened(payload),
            DATA => Some(Self::Data(payload)),
            CREDIT => payload
                .try_into()
                .ok()
                .map(|bytes| Self::Credit(u32::from_be_bytes(bytes))),
            END | CLOSE | RESET if !payload.is_empty() => None,
            END => Some(Self::End),
            CLOSE => Some(Self::Close),
            RESET => Some(Self::Reset),
            DATAGRAM => Datagram::decode(payload).map(Self::Datagram),
            _ => return Err(FrameError::Unknown { kind }),
        };
        decoded.ok_or(FrameError::Malformed { kind })
    }
}

impl<'a> Datagram<'a> {
    fn encode(&self) -> Vec<u8> {
        let (client, server) = (encode_address(self.client), self.server.octets());
        [&client[..], &server, self.bytes].concat()
    }

    fn decode(payload: &'a [u8]) -> Option<Self> {
        let (client, rest) = payload.split_first_chunk()?;
        let (server, bytes) = rest.split_first_chunk::<4>()?;
        Some(Self {
            client: decode_address(*client),
            server: Ipv4Addr::from(*server),
            bytes,
        })
    }
}

fn decode_opened(payload: &[u8]) -> Option<RelayFrame<'_>> {
    let (listener, rest) = payload.split_first_chunk()?;
    let address: [u8; 6] = rest.try_into().ok()?;
    Some(RelayFrame::Opened {
        listener: u16::from_be_bytes(*listener),
        destination: decode_address(address),
    })
}

fn encode_address(address: SocketAddrV4) -> [u8; 6] {
    let ([a, b, c, d], [high, low]) = (address.ip().octets(), address.port().to_be_bytes());
    [a, b, c, d, high, low]
}

fn decode_address([a, b, c, d, high, low]: [u8; 6]) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

/// What a receiver has allowed the sender of one connection to send.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    /// [`FIRST_WINDOW`] or [`FULL_WINDOW`].
    size: usize,
    /// How much the sender may still send.
    left: usize,
    /// How much was delivered since the last credit.
    delivered: usize,
}

/// The full windows that are left.
#[derive(Debug)]
pub(crate) struct FullWindows(usize);

impl Default for FullWindows {
    fn default() -> Self {
        Self(FULL_WINDOWS)
    }
}

impl Default for ReceiveWindow {
    fn default() -> Self {
        Self {
            size: FIRST_WINDOW,
            left: FIRST_WINDOW,
            delivered: 0,
        }
    }
}

impl ReceiveWindow {
    /// Records received bytes. `None` if the sender had no credit for them.
    pub(crate) fn receive(&mut self, bytes: usize) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }

    /// Records that bytes were delivered, which makes room for others. Returns the credit to send, if it is worth a frame.
    pub(crate) fn deliver(&mut self, bytes: usize, full_windows: &mut FullWindows) -> Option<u32> {
        self.delivered += bytes;
        if self.delivered < self.size / 2 {
            return None;
        }
        let mut credit = std::mem::take(&mut self.delivered);
        if self.size < FULL_WINDOW && full_windows.0 > 0 {
            full_windows.0 -= 1;
            credit += FULL_WINDOW - self.size;
            self.size = FULL_WINDOW;
        }
        self.left += credit;
        u32::try_from(credit).ok()
    }

    /// Returns a full window when its connection is over.
    pub(crate) fn release(&self, full_windows: &mut FullWindows) {
        if self.size == FULL_WINDOW {
            full_windows.0 += 1;
        }
    }
}

/// How much of a connection's data may be sent.
#[derive(Debug)]
pub(crate) struct SendCredit(usize);

impl Default for SendCredit {
    fn default() -> Self {
        Self(FIRST_WINDOW)
    }
}

impl SendCredit {
    pub(crate) fn left(&self) -> usize {
        self.0
    }

    /// Records sent bytes, which must not be more than are left.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    /// Adds credit. `None` if the other end gives more than its memory is meant for.
    pub(crate) fn add(&mut self, bytes: u32) -> Option<()> {
        let sum = self.0.checked_add(bytes as usize)?;
        self.0 = Some(sum).filter(|sum| *sum <= FULL_WINDOW)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const DESTINATION: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 443);

    #[rstest]
    #[case(RelayFrame::Hello(u64::MAX))]
    #[case(RelayFrame::Control(b"describe\n"))]
    #[case(RelayFrame::Opened { listener: 252, destination: DESTINATION })]
    #[case(RelayFrame::Data(b"\0\xff"))]
    #[case(RelayFrame::Credit(u32::MAX))]
    #[case(RelayFrame::End)]
    #[case(RelayFrame::Close)]
    #[case(RelayFrame::Reset)]
    #[case(RelayFrame::Datagram(Datagram { client: DESTINATION, server: Ipv4Addr::BROADCAST, bytes: b"?" }))]
    fn frames_are_decoded(#[case] frame: RelayFrame<'_>) {
        let mut bytes = Vec::new();
        frame.append_to(7, &mut bytes).unwrap();
        let mut decoder = RelayFrame::decoder();
        // As one piece, and byte by byte.
        for piece in [bytes.len(), 1] {
            let mut decoded = None;
            for piece in bytes.chunks(piece) {
                assert_eq!(decoded, None);
                decoder.buffer().extend_from_slice(piece);
                let frame = decoder.next().unwrap();
                decoded = frame.map(|frame| (frame.id, format!("{:?}", RelayFrame::decode(frame).unwrap())));
            }
            assert_eq!(decoded, Some((7, format!("{frame:?}"))));
        }
    }

    #[rstest]
    #[case(HELLO, 7)]
    #[case(HELLO, 9)]
    #[case(OPENED, 7)]
    #[case(OPENED, 9)]
    #[case(CREDIT, 3)]
    #[case(CREDIT, 5)]
    #[case(END, 1)]
    #[case(CLOSE, 1)]
    #[case(RESET, 1)]
    #[case(DATAGRAM, 9)]
    fn missing_and_trailing_bytes_are_refused(#[case] kind: u8, #[case] length: usize) {
        let payload = &vec![0; length];
        let decoded = RelayFrame::decode(Frame { kind, id: 1, payload });
        assert_eq!(decoded, Err(FrameError::Malformed { kind }));
    }

    #[test]
    fn data_beyond_the_limit_is_refused_at_both_ends() {
        let mut bytes = Vec::new();
        let long = vec![0; PIECE + 1];
        assert!(RelayFrame::Data(&long).append_to(1, &mut bytes).is_err());
        assert!(bytes.is_empty());
        RelayFrame::Data(&long[1..]).append_to(1, &mut bytes).unwrap();
        let mut decoder = RelayFrame::decoder();
        // The header of a frame that is one byte longer.
        bytes[5..9].copy_from_slice(&u32::try_from(PIECE + 1).unwrap().to_be_bytes());
        decoder.buffer().extend_from_slice(&bytes[..9]);
        assert!(matches!(decoder.next(), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn only_some_connections_have_the_full_window() {
        let mut full = FullWindows::default();
        let mut windows: Vec<ReceiveWindow> =
            (0..MAX_CONNECTIONS).map(|_| ReceiveWindow::default()).collect();
        for window in &mut windows {
            window.receive(FIRST_WINDOW).unwrap();
            window.deliver(FIRST_WINDOW, &mut full).unwrap();
        }
        let total: usize = windows.iter().map(|window| window.left).sum();
        let first = (MAX_CONNECTIONS - FULL_WINDOWS) * FIRST_WINDOW;
        assert_eq!(total, first + FULL_WINDOWS * FULL_WINDOW);
        for window in &windows {
            window.release(&mut full);
        }
        assert_eq!(full.0, FULL_WINDOWS);
    }

    proptest! {
        #[test]
        fn decoding_an_arbitrary_payload_does_not_panic(kind in 28u8..44, payload in vec(any::<u8>(), 0..200)) {
            let _ = RelayFrame::decode(Frame { kind, id: 0, payload: &payload });
        }

        /// The receiver accepts all that the sender sends within its credit. At most the full window is on the way, and the
        /// sender always gets new credit.
        #[test]
        fn credit_matches_the_window(steps in vec((any::<bool>(), 1usize..100_000), 1..200)) {
            let (mut full, mut window, mut credit) = (FullWindows::default(), ReceiveWindow::default(), SendCredit::default());
            let mut undelivered = 0;
            for (sends, bytes) in steps {
                if sends {
                    let bytes = bytes.min(credit.left());
                    credit.spend(bytes);
                    prop_assert!(window.receive(bytes).is_some());
                    undelivered += bytes;
                } else {
                    let bytes = bytes.min(undelivered);
                    undelivered -= bytes;
                    if let Some(more) = window.deliver(bytes, &mut full) {
                        prop_assert!(credit.add(more).is_some());
                    }
                }
                prop_assert!(undelivered + credit.left() <= FULL_WINDOW);
                prop_assert_eq!(credit.left(), window.left);
            }
            if let Some(more) = window.deliver(undelivered, &mut full) {
                prop_assert!(credit.add(more).is_some());
            }
            prop_assert!(credit.left() > 0);
        }

        #[test]
        fn more_data_or_credit_than_allowed_is_refused(excess in 1usize..100_000) {
            prop_assert!(ReceiveWindow::default().receive(FIRST_WINDOW + excess).is_none());
            let most = u32::try_from(FULL_WINDOW - FIRST_WINDOW).unwrap();
            prop_assert!(SendCredit::default().add(most).is_some());
            prop_assert!(SendCredit::default().add(most + u32::try_from(excess).unwrap()).is_none());
            prop_assert!(SendCredit::default().add(u32::MAX).is_none());
        }
    }
}
