//! Images that a program prints.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::archive::{catalogue_of_stream, read_layers_of_stream};
use super::catalogue::{Catalogue, Layer};
use super::error::LoadError;
use super::source::EachLayer;
use crate::exec::{Command, Host, OutputLine, OutputSink, Stream};

/// How many pieces of output wait at most.
const PIECES: usize = 8;

/// Runs the program for what its image consists of.
pub(super) fn catalogue(program: &Path, host: &Host) -> Result<Catalogue, LoadError> {
    catalogue_of_stream(Output::of(program, host), program)
}

/// Runs the program for the bytes of these layers.
pub(super) fn read_layers(
    program: &Path,
    host: &Host,
    layers: &[&Layer],
    each: &mut EachLayer<'_>,
) -> io::Result<()> {
    read_layers_of_stream(Output::of(program, host), layers, each)
}

/// What a program prints, while it runs on another thread. Dropping it ends the program.
struct Output {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    _wanted: oneshot::Sender<()>,
}

impl Output {
    fn of(program: &Path, host: &Host) -> Self {
        let (sender, pieces) = sync_channel(PIECES);
        let (wanted, mut unwanted) = oneshot::channel();
        let command = Command::new(program.to_string_lossy());
        let (host, runtime) = (host.clone(), Handle::current());
        tokio::task::spawn_blocking(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = run(&host, &command, sender) => {}
                    _ = &mut unwanted => {}
                }
            });
        });
        Self {
            pieces,
            piece: io::Cursor::default(),
            _wanted: wanted,
        }
    }
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.pieces.recv() {
                Ok(piece) => self.piece = io::Cursor::new(piece?),
                Err(_) => return Ok(0),
            }
        }
    }
}

/// Runs the program to its end; one that fails makes the stream fail, so that half an image is never taken for one.
async fn run(host: &Host, command: &Command, sender: SyncSender<io::Result<Vec<u8>>>) {
    let mut pipe = Pipe(sender.clone());
    let failure = match host.run(command, &mut pipe).await {
        Ok(exit) if exit.success() => return,
        Ok(exit) => io::Error::other(format!("{}\n{}", exit.status, exit.stderr.text())),
        Err(error) => error,
    };
    let _ = sender.send(Err(failure));
}

/// Passes standard output on as it is.
struct Pipe(SyncSender<io::Result<Vec<u8>>>);

impl OutputSink for Pipe {
    fn line(&mut self, _line: OutputLine) {}

    fn wants_lines(&self) -> bool {
        false
    }

    fn bytes(&mut self, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Stdout && !bytes.is_empty() {
            let _ = self.0.send(Ok(bytes.to_vec()));
        }
    }
}
