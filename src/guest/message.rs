//! The messages of a session. Compiled into ralph and into the guest.

use std::borrow::Cow;
use std::time::Duration;

use super::frame::{Frame, FrameError};

/// The version of the guest: a hash of its source, which `build.rs` makes.
pub(crate) const VERSION: u64 = match u64::from_str_radix(env!("GUEST_VERSION"), 10) {
    Ok(version) => version,
    Err(_) => panic!("GUEST_VERSION is not a number"),
};

/// Flow control: how many bytes of a stream may be in flight. Daytona buffers 256 pieces of 4 KiB of a terminal's output
/// for a slow reader and then disconnects it; both streams of a command fit in there twice.
pub(crate) const WINDOW: usize = 256 * 1024;

/// The longest piece of a stream in one frame: the capacity of a pipe.
pub(crate) const CHUNK: usize = 64 * 1024;

/// The length in bytes of the password that the guest shows at ralph's socket.
pub(crate) const PASSWORD_LENGTH: usize = 32;

/// An output stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout = STDOUT as isize,
    Stderr = STDERR as isize,
}

/// A message from ralph to the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToGuest<'a> {
    /// Starts a command under a new id.
    Start(StartCommand<'a>),
    /// The next piece of its standard input.
    Stdin(&'a [u8]),
    /// Closes its standard input.
    StdinEnd,
    /// Allows the guest to send this many more bytes of its output.
    Credit(Channel, u32),
    /// Kills the command and all its descendants.
    Kill,
    /// Kills all commands and everything they left running. The id is that of the request.
    EndAll,
}

/// A message from the guest to ralph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromGuest<'a> {
    /// The first frame of a session: the version of the guest.
    Hello(u64),
    /// The next piece of a command's output.
    Output(Channel, &'a [u8]),
    /// Allows ralph to send this many more bytes of its input.
    Credit(u32),
    /// The command has ended. This is the last message about it.
    Exit {
        status: CommandStatus,
        /// Whether another process still has its output streams open.
        streams_held: bool,
    },
    /// The command could not be started: the failed step and `errno`. This is the last message about it.
    Failed(StartStage, i32),
    /// Everything that ran at the time of the request has ended.
    AllEnded,
}

/// A command to start. Arguments and paths are bytes, they need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartCommand<'a> {
    /// The program and its arguments.
    pub(crate) argv: Vec<&'a [u8]>,
    /// Its whole environment.
    pub(crate) env: Vec<(&'a [u8], &'a [u8])>,
    pub(crate) cwd: &'a [u8],
    /// Whether it gets input; otherwise its standard input is empty.
    pub(crate) has_stdin: bool,
    pub(crate) limits: CommandLimits,
}

/// The time limits of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandLimits {
    pub(crate) timeout: Option<Duration>,
    /// How long it may run without output.
    pub(crate) idle: Option<Duration>,
    /// How long to wait for the end of its output after it exited: a child may hold the streams open.
    pub(crate) grace: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandStatus {
    Code(i32),
    Signal(i32),
    TimedOut,
    Idle,
}

/// The step of starting a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStage {
    /// Creating pipes and the keeper process.
    Prepare = 0,
    /// Changing to its working directory.
    Directory = 1,
    /// Executing the program.
    Program = 2,
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
    /// Appends the message to `out` as a frame.
    pub(crate) fn append_to(&self, id: u32, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (kind, payload) = match self {
            Self::Start(start) => (START, start.encode().into()),
            Self::Stdin(bytes) => (STDIN, Cow::Borrowed(*bytes)),
            Self::StdinEnd => (STDIN_END, Cow::default()),
            Self::Credit(channel, bytes) => (CREDIT, concat([*channel as u8], bytes.to_be_bytes())),
            Self::Kill => (KILL, Cow::default()),
            Self::EndAll => (END_ALL, Cow::default()),
        };
        let payload = &payload;
        Frame { kind, id, payload }.append_to(out)
    }

    /// Decodes a frame.
    pub(crate) fn decode(frame: Frame<'a>) -> Result<Self, FrameError> {
        decode(frame, |fields| {
            Some(match frame.kind {
                START => Self::Start(StartCommand::read(fields)?),
                STDIN => Self::Stdin(fields.rest()),
                STDIN_END => Self::StdinEnd,
                CREDIT => Self::Credit(Channel::from_code(fields.u8()?)?, fields.u32()?),
                KILL => Self::Kill,
                END_ALL => Self::EndAll,
                _ => return None,
            })
        })
    }
}

impl<'a> FromGuest<'a> {
    /// Appends the message to `out` as a frame.
    pub(crate) fn append_to(&self, id: u32, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (kind, payload) = match self {
            Self::Hello(version) => (HELLO, version.to_be_bytes().to_vec().into()),
            Self::Output(channel, bytes) => (*channel as u8, Cow::Borrowed(*bytes)),
            Self::Credit(bytes) => (CREDIT, bytes.to_be_bytes().to_vec().into()),
            Self::Exit { status, streams_held } => (EXIT, concat(status.encode(), [u8::from(*streams_held)])),
            Self::Failed(stage, errno) => (FAILED, concat([*stage as u8], errno.to_be_bytes())),
            Self::AllEnded => (ALL_ENDED, Cow::default()),
        };
        let payload = &payload;
        Frame { kind, id, payload }.append_to(out)
    }

    /// Decodes a frame.
    pub(crate) fn decode(frame: Frame<'a>) -> Result<Self, FrameError> {
        decode(frame, |fields| {
            Some(match frame.kind {
                HELLO => Self::Hello(fields.u64()?),
                STDOUT | STDERR => Self::Output(Channel::from_code(frame.kind)?, fields.rest()),
                CREDIT => Self::Credit(fields.u32()?),
                EXIT => Self::Exit {
                    status: CommandStatus::read(fields)?,
                    streams_held: fields.bool()?,
                },
                FAILED => Self::Failed(StartStage::from_code(fields.u8()?)?, fields.i32()?),
                ALL_ENDED => Self::AllEnded,
                _ => return None,
            })
        })
    }
}

/// A payload of two fields.
fn concat<const M: usize, const N: usize>(first: [u8; M], second: [u8; N]) -> Cow<'static, [u8]> {
    [&first[..], &second].concat().into()
}

/// Decodes a payload. Trailing bytes are an error, like missing fields.
fn decode<'a, M>(
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
    fn from_code(code: u8) -> Option<Self> {
        [Self::Stdout, Self::Stderr]
            .into_iter()
            .find(|channel| *channel as u8 == code)
    }
}

impl StartStage {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Prepare, Self::Directory, Self::Program]
            .into_iter()
            .find(|stage| *stage as u8 == code)
    }
}

impl CommandStatus {
    fn encode(self) -> [u8; 5] {
        let (code, value) = match self {
            Self::Code(code) => (0, code),
            Self::Signal(signal) => (1, signal),
            Self::TimedOut => (2, 0),
            Self::Idle => (3, 0),
        };
        let [a, b, c, d] = value.to_be_bytes();
        [code, a, b, c, d]
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

impl<'a> StartCommand<'a> {
    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        put_count(&mut fields, self.argv.len());
        self.argv.iter().for_each(|arg| put_bytes(&mut fields, arg));
        put_count(&mut fields, self.env.len());
        for (name, value) in &self.env {
            put_bytes(&mut fields, name);
            put_bytes(&mut fields, value);
        }
        put_bytes(&mut fields, self.cwd);
        fields.push(u8::from(self.has_stdin));
        for duration in [Some(self.limits.grace), self.limits.timeout, self.limits.idle] {
            fields.push(u8::from(duration.is_some()));
            let micros = duration.unwrap_or_default().as_micros();
            fields.extend(u64::try_from(micros).unwrap_or(u64::MAX).to_be_bytes());
        }
        fields
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
            has_stdin: fields.bool()?,
            limits: CommandLimits {
                grace: fields.duration()??,
                timeout: fields.duration()?,
                idle: fields.duration()?,
            },
        })
    }
}

/// A count that does not fit into 32 bits means that the payload is too long to be sent.
fn put_count(fields: &mut Vec<u8>, count: usize) {
    fields.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

fn put_bytes(fields: &mut Vec<u8>, bytes: &[u8]) {
    put_count(fields, bytes.len());
    fields.extend_from_slice(bytes);
}

/// Decodes the fields of a payload; `None` if bytes are missing or invalid.
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

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
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

    #[expect(
        clippy::option_option,
        reason = "the outer `None` is a decoding error, the inner one no limit"
    )]
    fn duration(&mut self) -> Option<Option<Duration>> {
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

    use super::super::frame::FrameDecoder;
    use super::*;

    const LIMITS: CommandLimits = CommandLimits {
        timeout: Some(Duration::from_millis(1500)),
        idle: None,
        grace: Duration::ZERO,
    };

    fn start() -> ToGuest<'static> {
        ToGuest::Start(StartCommand {
            argv: vec![b"printf", b"", b"\xff\0"],
            env: vec![(b"A", b"b=c"), (b"", b"")],
            cwd: b"/some where",
            has_stdin: true,
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
    fn messages_to_the_guest_are_decoded(#[case] message: ToGuest<'_>) {
        let mut decoder = FrameDecoder::default();
        message.append_to(7, decoder.buffer()).unwrap();
        let frame = decoder.next().unwrap().unwrap();
        assert_eq!((frame.id, ToGuest::decode(frame).unwrap()), (7, message));
    }

    #[rstest]
    #[case(FromGuest::Hello(u64::MAX))]
    #[case(FromGuest::Output(Channel::Stdout, b"\0\xff"))]
    #[case(FromGuest::Output(Channel::Stderr, b""))]
    #[case(FromGuest::Credit(3))]
    #[case(FromGuest::Exit { status: CommandStatus::Code(-1), streams_held: true })]
    #[case(FromGuest::Exit { status: CommandStatus::Signal(9), streams_held: false })]
    #[case(FromGuest::Exit { status: CommandStatus::TimedOut, streams_held: false })]
    #[case(FromGuest::Exit { status: CommandStatus::Idle, streams_held: false })]
    #[case(FromGuest::Failed(StartStage::Directory, 2))]
    #[case(FromGuest::AllEnded)]
    fn messages_from_the_guest_are_decoded(#[case] message: FromGuest<'_>) {
        let mut decoder = FrameDecoder::default();
        message.append_to(7, decoder.buffer()).unwrap();
        let frame = decoder.next().unwrap().unwrap();
        assert_eq!((frame.id, FromGuest::decode(frame).unwrap()), (7, message));
    }

    #[test]
    fn missing_and_trailing_bytes_are_refused() {
        let mut bytes = Vec::new();
        start().append_to(1, &mut bytes).unwrap();
        let payload = &bytes[9..];
        for wrong in [&payload[..payload.len() - 1], &[payload, b"x"].concat()] {
            let (kind, id) = (START, 1);
            let read = ToGuest::decode(Frame {
                kind,
                id,
                payload: wrong,
            });
            assert_eq!(read, Err(FrameError::Malformed { kind }));
        }
    }

    #[test]
    fn arguments_beyond_the_limit_are_refused_before_sending() {
        let long = vec![b'x'; super::super::frame::MAX_PAYLOAD];
        let message = ToGuest::Start(StartCommand {
            argv: vec![&long],
            env: Vec::new(),
            cwd: b"/",
            has_stdin: false,
            limits: LIMITS,
        });
        assert!(matches!(
            message.append_to(1, &mut Vec::new()),
            Err(FrameError::TooLong { .. })
        ));
    }

    proptest! {
        #[test]
        fn decoding_an_arbitrary_payload_does_not_panic(kind in 0u8..30, payload in vec(any::<u8>(), 0..200)) {
            let frame = Frame { kind, id: 0, payload: &payload };
            let _ = ToGuest::decode(frame);
            let _ = FromGuest::decode(frame);
        }
    }
}
