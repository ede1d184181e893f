//! What a session makes of a guest that is not ours, or says what no guest says.

use std::collections::BTreeMap;
use std::time::Duration;

use ralph::exec::{Command, Discard};
use ralph::sandbox::SandboxError;
use ralph::sandbox::session::{SessionContext, SessionError, WarmSession};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::guest_session::in_time;

const HELLO: u8 = 16;
const STDOUT: u8 = 17;
const EXIT: u8 = 19;

fn frame(kind: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&[kind], &id.to_be_bytes()[..], &length.to_be_bytes(), payload].concat()
}

fn hello() -> Vec<u8> {
    frame(HELLO, 0, &ralph::guest::VERSION.to_be_bytes())
}

/// Opens a session with the peer at the other end of the returned stream, which has sent `first`.
async fn open(first: &[u8]) -> (Result<WarmSession, SessionError>, DuplexStream) {
    let (ours, mut theirs) = duplex(64 * 1024 * 1024);
    theirs.write_all(first).await.unwrap();
    let (from_guest, to_guest) = tokio::io::split(ours);
    let context = SessionContext {
        sandbox: "a fake".to_owned(),
        env: BTreeMap::new(),
        dir: "/".into(),
        grace: Duration::ZERO,
    };
    let opening = WarmSession::open(from_guest, to_guest, context);
    (in_time(opening).await, theirs)
}

#[tokio::test]
async fn a_guest_of_another_version_is_refused() {
    let (session, _stream) = open(&frame(HELLO, 0, &7_u64.to_be_bytes())).await;
    let error = session.unwrap_err();
    assert!(
        matches!(error, SessionError::Version { theirs: 7, .. }),
        "{error}"
    );
    assert!(error.hint().is_some());
}

#[rstest]
#[case::another_frame(&frame(STDOUT, 1, b"x"))]
#[case::a_hello_without_a_version(&frame(HELLO, 0, b""))]
#[case::an_unknown_frame(&frame(99, 0, b""))]
#[case::a_shell(b"sh: 1: guest: not found\n")]
#[tokio::test]
async fn what_is_no_hello_is_refused(#[case] first: &[u8]) {
    let (session, _stream) = open(first).await;
    let error = session.unwrap_err();
    let SessionError::Lost { source } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(source.kind(), std::io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn a_stream_that_ends_before_the_hello_is_an_error() {
    let (ours, theirs) = duplex(64);
    drop(theirs);
    let (from_guest, to_guest) = tokio::io::split(ours);
    let context = SessionContext {
        sandbox: "a fake".to_owned(),
        env: BTreeMap::new(),
        dir: "/".into(),
        grace: Duration::ZERO,
    };
    let error = WarmSession::open(from_guest, to_guest, context)
        .await
        .unwrap_err();
    assert!(matches!(error, SessionError::Lost { .. }), "{error:?}");
}

/// Runs a command while the other end says these frames.
async fn run_against(frames: &[Vec<u8>]) -> Result<ralph::exec::Exit, SandboxError> {
    let (session, mut stream) = open(&hello()).await;
    let session = session.unwrap();
    let command = Command::new("true");
    let mut output = Discard;
    let (exit, ()) = in_time(async {
        tokio::join!(session.exec(&command, &mut output), async {
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            stream.write_all(&frames.concat()).await.unwrap();
        })
    })
    .await;
    exit
}

#[tokio::test]
async fn frames_of_other_commands_are_ignored() {
    let other = frame(STDOUT, 7, b"forged");
    let exit = frame(EXIT, 1, &[0, 0, 0, 0, 3, 0]);
    let exit = run_against(&[other, frame(STDOUT, 1, b"own"), exit])
        .await
        .unwrap();
    assert_eq!(
        (exit.stdout.text().as_str(), exit.status.shell_code()),
        ("own", 3)
    );
}

#[rstest]
#[case::a_second_hello(vec![frame(HELLO, 1, &[0; 8])])]
#[case::an_answer_to_another_question(vec![frame(21, 1, b"")])]
#[case::an_exit_without_a_status(vec![frame(EXIT, 1, b"")])]
#[case::an_endless_frame(vec![vec![STDOUT, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]])]
#[case::more_than_it_may_send(vec![frame(STDOUT, 1, &vec![0; 60_000]); 200])]
#[tokio::test]
async fn a_guest_that_talks_nonsense_loses_its_session(#[case] frames: Vec<Vec<u8>>) {
    let result = run_against(&frames).await;
    let error = result.unwrap_err();
    assert!(
        matches!(error.cause(), Some(SessionError::Lost { .. })),
        "{error:?}"
    );
}
