//! What the two ends of a session say to each other. Compiled into ralph and into the guest.

use std::time::Duration;

use super::frame::{Frame, FrameError};

/// How many bytes of a stream may be under way that the other end has not yet made use of. Of what a terminal prints,
/// Daytona keeps 256 pieces of 4 KiB for a slow listener, and drops the listener after that: both streams of a command
/// have room in there twice.
pub(crate) const WINDOW: usize = 256 * 1024;

/// The longest piece of a stream in one frame: what a pipe holds.
pub(crate) const CHUNK: usize = 64 * 1024;

/// How many bytes the guest shows at a door, to be let in.
pub(crate) const PASSWORD: usize = 32;

/// One of the two streams a command prints to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
}

/// From ralph to the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToGuest<'a> {
    /// Starts a command, under an id that no command had before.
    Start(Start<'a>),
    /// The next piece of its input.
    Stdin(&'a [u8]),
    /// Its input is over.
    StdinEnd,
    /// So many more bytes of its output may be sent.
    Credit(Channel, u32),
    /// Ends it, and everything it started.
    Kill,
    /// Ends every command and whatever any of them left behind; the id is that of the request.
    EndAll,
}

/// From the guest to ralph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromGuest<'a> {
    /// The first frame of all: which guest this is.
    Hello(u64),
    /// A piece of a command's output.
    Output(Channel, &'a [u8]),
    /// So many more bytes of its input may be sent.
    Credit(u32),
    /// It has ended. Nothing more is said about it.
    Exit(Status, Hold),
    /// It could not be started. Nothing more is said about it.
    Failed(Stage, i32),
    /// All that was there when this was asked has ended.
    AllEnded,
}

/// A command to start. Text is bytes: arguments and paths need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start<'a> {
    /// The program and its arguments.
    pub(crate) argv: Vec<&'a [u8]>,
    /// All of its variables.
    pub(crate) env: Vec<(&'a [u8], &'a [u8])>,
    pub(crate) cwd: &'a [u8],
    pub(crate) input: Input,
    pub(crate) limits: Limits,
}

/// Whether a command gets input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Nothing,
    Piped,
}

/// How long a command is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) timeout: Option<Duration>,
    /// How long it may print nothing.
    pub(crate) idle: Option<Duration>,
    /// How long a child that holds the streams is waited for when the command itself has ended.
    pub(crate) grace: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Code(i32),
    Signal(i32),
    TimedOut,
    Idle,
}

/// What became of the output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Closed,
    Held,
}

/// What could not be done to start a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Making pipes and processes.
    Prepare,
    /// Entering its directory.
    Directory,
    /// Running the program.
    Program,
}

const START: u8 = 1;
const STDIN: u8 = 2;
const STDIN_END: u8 = 3;
const CREDIT: u8 = 4;
const KILL: u8 = 5;
const END_ALL: u8 = 6;
const HELLO: u8 = 16;
const STDOUT: u8 = 17;
const STDERR: u8 = 18;
const EXIT: u8 = 19;
const FAILED: u8 = 20;
const ALL_ENDED: u8 = 21;

impl<'a> ToGuest<'a> {
    /// Puts the message at the end of `out`, as a frame.
    pub(crate) fn append_to(&self, id: u32, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let mut fields = Writer::default();
        let (kind, payload) = match self {
            Self::Start(start) => {
                start.write(&mut fields);
                (START, &*fields.0)
            }
            Self::Stdin(bytes) => (STDIN, *bytes),
            Self::StdinEnd => (STDIN_END, &[][..]),
            Self::Credit(channel, bytes) => {
                fields.u8(channel.code());
                fields.u32(*bytes);
                (CREDIT, &*fields.0)
            }
            Self::Kill => (KILL, &[][..]),
            Self::EndAll => (END_ALL, &[][..]),
        };
        Frame { kind, id, payload }.append_to(out)
    }

    /// Reads a frame.
    pub(crate) fn of(frame: Frame<'a>) -> Result<Self, FrameError> {
        read(frame, |fields| {
            Some(match frame.kind {
                START => Self::Start(Start::read(fields)?),
                STDIN => Self::Stdin(fields.rest()),
                STDIN_END => Self::StdinEnd,
                CREDIT => Self::Credit(Channel::of(fields.u8()?)?, fields.u32()?),
                KILL => Self::Kill,
                END_ALL => Self::EndAll,
                _ => return None,
            })
        })
    }
}

impl<'a> FromGuest<'a> {
    /// Puts the message at the end of `out`, as a frame.
    pub(crate) fn append_to(&self, id: u32, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let mut fields = Writer::default();
        let (kind, payload) = match self {
            Self::Hello(version) => {
                fields.u64(*version);
                (HELLO, &*fields.0)
            }
            Self::Output(channel, bytes) => (channel.code(), *bytes),
            Self::Credit(bytes) => {
                fields.u32(*bytes);
                (CREDIT, &*fields.0)
            }
            Self::Exit(status, hold) => {
                status.write(&mut fields);
                fields.u8(u8::from(*hold == Hold::Held));
                (EXIT, &*fields.0)
            }
            Self::Failed(stage, errno) => {
                fields.u8(stage.code());
                fields.i32(*errno);
                (FAILED, &*fields.0)
            }
            Self::AllEnded => (ALL_ENDED, &[][..]),
        };
        Frame { kind, id, payload }.append_to(out)
    }

    /// Reads a frame.
    pub(crate) fn of(frame: Frame<'a>) -> Result<Self, FrameError> {
        read(frame, |fields| {
            Some(match frame.kind {
                HELLO => Self::Hello(fields.u64()?),
                STDOUT | STDERR => Self::Output(Channel::of(frame.kind)?, fields.rest()),
                CREDIT => Self::Credit(fields.u32()?),
                EXIT => Self::Exit(Status::read(fields)?, Hold::of(fields.u8()?)?),
                FAILED => Self::Failed(Stage::of(fields.u8()?)?, fields.i32()?),
                ALL_ENDED => Self::AllEnded,
                _ => return None,
            })
        })
    }
}

/// Reads a payload to its last byte. What comes after the fields is as wrong as a field that is missing.
fn read<'a, M>(
    frame: Frame<'a>,
    message: impl FnOnce(&mut Reader<'a>) -> Option<M>,
) -> Result<M, FrameError> {
    let kind = frame.kind;
    if !matches!(kind, START..=END_ALL | HELLO..=ALL_ENDED) {
        return Err(FrameError::Unknown { kind });
    }
    let mut fields = Reader(frame.payload);
    match message(&mut fields) {
        Some(message) if fields.0.is_empty() => Ok(message),
        Some(_) | None => Err(FrameError::Malformed { kind }),
    }
}

impl Channel {
    fn code(self) -> u8 {
        match self {
            Self::Stdout => STDOUT,
            Self::Stderr => STDERR,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Stdout, Self::Stderr]
            .into_iter()
            .find(|channel| channel.code() == code)
    }
}

impl Hold {
    fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Closed),
            1 => Some(Self::Held),
            _ => None,
        }
    }
}

impl Stage {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Prepare => 0,
            Self::Directory => 1,
            Self::Program => 2,
        }
    }

    pub(crate) fn of(code: u8) -> Option<Self> {
        [Self::Prepare, Self::Directory, Self::Program]
            .into_iter()
            .find(|stage| stage.code() == code)
    }
}

impl Status {
    fn write(self, fields: &mut Writer) {
        let (code, value) = match self {
            Self::Code(code) => (0, code),
            Self::Signal(signal) => (1, signal),
            Self::TimedOut => (2, 0),
            Self::Idle => (3, 0),
        };
        fields.u8(code);
        fields.i32(value);
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        match (fields.u8()?, fields.i32()?) {
            (0, code) => Some(Self::Code(code)),
            (1, signal) => Some(Self::Signal(signal)),
            (2, 0) => Some(Self::TimedOut),
            (3, 0) => Some(Self::Idle),
            _ => None,
        }
    }
}

impl<'a> Start<'a> {
    fn write(&self, fields: &mut Writer) {
        fields.count(self.argv.len());
        self.argv.iter().for_each(|arg| fields.bytes(arg));
        fields.count(self.env.len());
        for (name, value) in &self.env {
            fields.bytes(name);
            fields.bytes(value);
        }
        fields.bytes(self.cwd);
        fields.u8(u8::from(self.input == Input::Piped));
        fields.time(Some(self.limits.grace));
        fields.time(self.limits.timeout);
        fields.time(self.limits.idle);
    }

    fn read(fields: &mut Reader<'a>) -> Option<Self> {
        let argv = (0..fields.u32()?)
            .map(|_| fields.bytes())
            .collect::<Option<_>>()?;
        let env = (0..fields.u32()?)
            .map(|_| Some((fields.bytes()?, fields.bytes()?)))
            .collect::<Option<_>>()?;
        Some(Self {
            argv,
            env,
            cwd: fields.bytes()?,
            input: match fields.u8()? {
                0 => Input::Nothing,
                1 => Input::Piped,
                _ => return None,
            },
            limits: Limits {
                grace: fields.time()??,
                timeout: fields.time()?,
                idle: fields.time()?,
            },
        })
    }
}

/// Writes the fields of a payload. A count that does not fit makes a payload that is too long to be sent.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn count(&mut self, value: usize) {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX));
    }

    fn bytes(&mut self, value: &[u8]) {
        self.count(value.len());
        self.0.extend_from_slice(value);
    }

    fn time(&mut self, value: Option<Duration>) {
        self.u8(u8::from(value.is_some()));
        let micros = value.map_or(0, |value| u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
        self.u64(micros);
    }
}

/// Reads the fields of a payload; `None` when there are not enough bytes.
#[derive(Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    #[expect(clippy::option_option, reason = "not enough bytes, or no limit")]
    fn time(&mut self) -> Option<Option<Duration>> {
        match (self.u8()?, self.u64()?) {
            (0, 0) => Some(None),
            (1, micros) => Some(Some(Duration::from_micros(micros))),
            _ => None,
        }
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::super::frame::Decoder;
    use super::*;

    const LIMITS: Limits = Limits {
        timeout: Some(Duration::from_millis(1500)),
        idle: None,
        grace: Duration::ZERO,
    };

    fn start() -> ToGuest<'static> {
        ToGuest::Start(Start {
            argv: vec![b"printf", b"", b"\xff\0"],
            env: vec![(b"A", b"b=c"), (b"", b"")],
            cwd: b"/some where",
            input: Input::Piped,
            limits: LIMITS,
        })
    }

    #[rstest]
    #[case(start())]
    #[case(ToGuest::Stdin(b"\0\xff"))]
    #[case(ToGuest::StdinEnd)]
    #[case(ToGuest::Credit(Channel::Stderr, u32::MAX))]
    #[case(ToGuest::Kill)]
    #[case(ToGuest::EndAll)]
    fn what_ralph_says_is_understood(#[case] message: ToGuest<'_>) {
        let mut decoder = Decoder::default();
        message.append_to(7, decoder.room()).unwrap();
        let frame = decoder.next().unwrap().unwrap();
        assert_eq!((frame.id, ToGuest::of(frame).unwrap()), (7, message));
    }

    #[rstest]
    #[case(FromGuest::Hello(u64::MAX))]
    #[case(FromGuest::Output(Channel::Stdout, b"\0\xff"))]
    #[case(FromGuest::Output(Channel::Stderr, b""))]
    #[case(FromGuest::Credit(3))]
    #[case(FromGuest::Exit(Status::Code(-1), Hold::Held))]
    #[case(FromGuest::Exit(Status::Signal(9), Hold::Closed))]
    #[case(FromGuest::Exit(Status::TimedOut, Hold::Closed))]
    #[case(FromGuest::Exit(Status::Idle, Hold::Closed))]
    #[case(FromGuest::Failed(Stage::Directory, 2))]
    #[case(FromGuest::AllEnded)]
    fn what_the_guest_says_is_understood(#[case] message: FromGuest<'_>) {
        let mut decoder = Decoder::default();
        message.append_to(7, decoder.room()).unwrap();
        let frame = decoder.next().unwrap().unwrap();
        assert_eq!((frame.id, FromGuest::of(frame).unwrap()), (7, message));
    }

    #[test]
    fn a_frame_with_too_much_or_too_little_is_refused() {
        let mut bytes = Vec::new();
        start().append_to(1, &mut bytes).unwrap();
        let payload = &bytes[9..];
        for wrong in [&payload[..payload.len() - 1], &[payload, b"x"].concat()] {
            let (kind, id) = (START, 1);
            let read = ToGuest::of(Frame {
                kind,
                id,
                payload: wrong,
            });
            assert_eq!(read, Err(FrameError::Malformed { kind }));
        }
    }

    #[test]
    fn arguments_beyond_the_limit_are_refused_before_they_are_sent() {
        let long = vec![b'x'; super::super::frame::LONGEST];
        let message = ToGuest::Start(Start {
            argv: vec![&long],
            env: Vec::new(),
            cwd: b"/",
            input: Input::Nothing,
            limits: LIMITS,
        });
        assert!(matches!(
            message.append_to(1, &mut Vec::new()),
            Err(FrameError::TooLong { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_payload_is_read_without_a_panic(kind in 0u8..30, payload in vec(any::<u8>(), 0..200)) {
            let frame = Frame { kind, id: 0, payload: &payload };
            let _ = ToGuest::of(frame);
            let _ = FromGuest::of(frame);
        }
    }
}
