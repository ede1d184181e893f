//! Images that a program prints.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::archive::catalogue_of_stream;
use super::cache::LayerCache;
use super::catalogue::Catalogue;
use super::listing::Flawed;
use super::probe::{Probe, Verdict};
use super::spool::Spool;
use super::stream_conf::Stream;
use crate::exec::{Command, Host, OutputLine, OutputSink, Stream as OutputStream};

/// How many pieces of output wait at most.
const PIECES: usize = 8;

/// Finds out what a program's image consists of: from its conf if its layers can be made here, else by running it.
pub(super) fn catalogue(
    program: &Path,
    host: &Host,
    cache: &LayerCache,
    spool: Spool,
) -> Result<Catalogue, Flawed> {
    match made_here(program, host, cache) {
        Ok(Some(catalogue)) => return Ok(catalogue),
        Ok(None) => {}
        // Whatever is wrong, the program itself says it best.
        Err(error) => tracing::info!(%error, "running the program for its layers"),
    }
    catalogue_of_stream(stream(program, host), Some(spool))
}

/// What the program prints.
pub(super) fn stream(program: &Path, host: &Host) -> Output {
    Output::of(Command::new(program.to_string_lossy()), host)
}

/// What the program's image consists of, if we can make its layers ourselves.
fn made_here(program: &Path, host: &Host, cache: &LayerCache) -> io::Result<Option<Catalogue>> {
    let Some(stream) = Stream::find(program) else {
        return Ok(None);
    };
    let Some(stamp) = stream.conf.stamp() else {
        return Ok(None);
    };
    let probe = Probe {
        stream: &stream,
        stamp: &stamp,
        host,
        cache,
    };
    match probe.verdict()? {
        Verdict::Same => stream.conf.catalogue(&stamp, cache).map(Some),
        Verdict::Other => Ok(None),
    }
}

/// What a program prints, while it runs on another thread. Dropping it ends the program.
pub(super) struct Output {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    _wanted: oneshot::Sender<()>,
}

impl Output {
    pub(super) fn of(command: Command, host: &Host) -> Self {
        let (sender, pieces) = sync_channel(PIECES);
        let (wanted, mut unwanted) = oneshot::channel();
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

    fn script(dir: &Path, text: &str) -> (PathBuf, Host) {
        let program = dir.join("script");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
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
    async fn a_program_nobody_reads_is_ended() {
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
