//! Images that a program prints.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::archive::read_stream;
use super::cache::LayerCache;
use super::contents::ImageContents;
use super::format_probe::has_same_format;
use super::listing::ArchiveError;
use super::spool::Spool;
use super::stream_conf::StreamProgram;
use crate::exec::{Command, Host, OutputLine, OutputSink, OutputStream};

/// How many pieces of output are buffered.
const PIECES: usize = 8;

/// Reads the config and layers of a program's image: from its conf if we can make the same layers, else by running it.
pub(super) fn read(
    program: &Path,
    host: &Host,
    cache: &LayerCache,
    spool: Spool,
) -> Result<ImageContents, ArchiveError> {
    match read_conf(program, host, cache) {
        Ok(Some(contents)) => return Ok(contents),
        Ok(None) => {}
        // The program reports the same problem in its own words.
        Err(error) => tracing::info!(%error, "cannot make the layers, running the program"),
    }
    read_stream(stream(program, host), Some(spool))
}

/// The archive that the program prints.
pub(super) fn stream(program: &Path, host: &Host) -> ProgramOutput {
    ProgramOutput::start(Command::new(program.to_string_lossy()), host)
}

fn read_conf(program: &Path, host: &Host, cache: &LayerCache) -> io::Result<Option<ImageContents>> {
    let Some(program) = StreamProgram::find(program) else {
        return Ok(None);
    };
    match program.conf.entry_metadata() {
        Some(metadata) if has_same_format(&program, &metadata, host, cache)? => {
            program.conf.read_contents(&metadata, cache).map(Some)
        }
        _ => Ok(None),
    }
}

/// The standard output of a program that runs on another thread. Dropping it ends the program.
pub(super) struct ProgramOutput {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    _cancel: oneshot::Sender<()>,
}

impl ProgramOutput {
    pub(super) fn start(command: Command, host: &Host) -> Self {
        let (sender, pieces) = sync_channel(PIECES);
        let (cancel, mut cancelled) = oneshot::channel();
        let (host, runtime) = (host.clone(), Handle::current());
        tokio::task::spawn_blocking(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = run(&host, &command, sender) => {}
                    _ = &mut cancelled => {}
                }
            });
        });
        Self {
            pieces,
            piece: io::Cursor::default(),
            _cancel: cancel,
        }
    }
}

impl Read for ProgramOutput {
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

/// Runs the program to its end. If it fails, so does the stream: a truncated image is never taken for a complete one.
async fn run(host: &Host, command: &Command, sender: SyncSender<io::Result<Vec<u8>>>) {
    let mut stdout = StdoutSink(sender.clone());
    let failure = match host.run(command, &mut stdout).await {
        Ok(exit) if exit.success() => return,
        Ok(exit) => io::Error::other(format!("{}\n{}", exit.status, exit.stderr.text())),
        Err(error) => error,
    };
    let _ = sender.send(Err(failure));
}

/// Passes standard output on as bytes.
struct StdoutSink(SyncSender<io::Result<Vec<u8>>>);

impl OutputSink for StdoutSink {
    fn line(&mut self, _line: OutputLine) {}

    fn wants_lines(&self) -> bool {
        false
    }

    fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        if stream == OutputStream::Stdout && !bytes.is_empty() {
            let _ = self.0.send(Ok(bytes.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::exec::tests::search_path;

    fn script(dir: &Path, text: &str) -> (PathBuf, Host) {
        let program = dir.join("script");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = BTreeMap::from([("PATH".to_owned(), search_path())]);
        (program, Host::new(path))
    }

    async fn read(text: &'static str) -> io::Result<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let (program, host) = script(dir.path(), text);
        let reading = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            stream(&program, &host).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        reading.await.unwrap()
    }

    #[tokio::test]
    async fn bytes_arrive_as_they_are_printed() {
        let text = r"printf 'a\000\377\nb'; head -c 300000 /dev/zero; echo not this >&2";
        let printed = read(text).await.unwrap();
        assert!(printed.starts_with(b"a\0\xff\nb\0") && printed.len() == 300_005);
    }

    #[tokio::test]
    async fn a_program_that_fails_fails_the_stream() {
        let error = read("echo half; echo the reason >&2; exit 9").await.unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("exit 9") && error.contains("the reason"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_program_is_ended_when_its_output_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let (program, host) = script(dir.path(), "echo $$ >\"$0.pid\"; exec yes");
        let reading = tokio::task::spawn_blocking(move || stream(&program, &host).read(&mut [0; 1]));
        assert_eq!(reading.await.unwrap().unwrap(), 1);
        let pid = fs::read_to_string(dir.path().join("script.pid")).unwrap();
        let process = Path::new("/proc").join(pid.trim());
        let started = Instant::now();
        while process.exists() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{} still runs",
                process.display()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
