//! The client inside a sandbox: this program once more, with the libraries that it is linked to. It prints what it measured.

use std::io::{Read, Write, stdin, stdout};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::Fallible;
use super::origin::{ANSWER, HOST, REQUEST, UPLOADS, WANTS_BYTES};

/// The first argument of a process that is the client.
pub(crate) const ROLE: &str = "client";
/// Where the program is inside.
pub(crate) const PROGRAM: &str = "/bin/relay-client";
/// What it prints before it reads its standard input.
pub(crate) const READY: u8 = b'!';

const CHUNK: usize = 256 << 10;

/// The files that it needs inside, each with its path there.
pub(crate) fn files() -> Fallible<Vec<(PathBuf, PathBuf)>> {
    let program = std::env::current_exe()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "it runs once, before anything is measured"
    )]
    let listed = Command::new("ldd").arg(&program).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    let inside = |path: &str| PathBuf::from(path.trim_start_matches('/'));
    let mut files: Vec<_> = libraries
        .map(|path| (PathBuf::from(path), inside(path)))
        .collect();
    files.push((program, inside(PROGRAM)));
    Ok(files)
}

/// Does what its arguments say.
pub(crate) fn run(args: &[String]) -> Fallible<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["download", port, count] => print([download(port, count.parse()?)?]),
        ["upload", port, count] => print([upload(port, count.parse()?)?]),
        ["requests", port, count] => print(requests(port, count.parse()?)?),
        ["connections", port, count] => print(connections(port, count.parse()?)?),
        ["read", count] => {
            stdout().write_all(&[READY])?;
            stdout().flush()?;
            read_exactly(&mut stdin(), count.parse()?)
        }
        ["write", count] => write_exactly(&mut stdout(), count.parse()?),
        other => Err(format!("no such client: {other:?}").into()),
    }
}

/// Prints how many microseconds each took.
fn print(times: impl IntoIterator<Item = Duration>) -> Fallible<()> {
    for time in times {
        writeln!(stdout(), "{}", time.as_secs_f64() * 1e6)?;
    }
    Ok(())
}

fn connect(port: &str) -> Fallible<TcpStream> {
    let stream = TcpStream::connect((HOST, port.parse()?))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn download(port: &str, count: usize) -> Fallible<Duration> {
    let mut stream = connect(port)?;
    let started = Instant::now();
    stream.write_all(&[WANTS_BYTES])?;
    read_exactly(&mut stream, count)?;
    Ok(started.elapsed())
}

/// The origin answers with one byte when it has them all.
fn upload(port: &str, count: usize) -> Fallible<Duration> {
    let mut stream = connect(port)?;
    let started = Instant::now();
    stream.write_all(&[UPLOADS])?;
    stream.write_all(&(count as u64).to_be_bytes())?;
    write_exactly(&mut stream, count)?;
    read_exactly(&mut stream, 1)?;
    Ok(started.elapsed())
}

/// One after the other, over one connection.
fn requests(port: &str, count: usize) -> Fallible<Vec<Duration>> {
    let mut stream = connect(port)?;
    (0..count).map(|_| request(&mut stream)).collect()
}

/// One after the other, each with a DNS query and a connection of its own.
fn connections(port: &str, count: usize) -> Fallible<Vec<Duration>> {
    let one = |_| {
        let started = Instant::now();
        request(&mut connect(port)?)?;
        Ok(started.elapsed())
    };
    (0..count).map(one).collect()
}

fn request(stream: &mut TcpStream) -> Fallible<Duration> {
    let started = Instant::now();
    stream.write_all(REQUEST.as_bytes())?;
    read_exactly(stream, ANSWER.len())?;
    Ok(started.elapsed())
}

fn read_exactly(source: &mut impl Read, count: usize) -> Fallible<()> {
    let mut chunk = vec![0; CHUNK.min(count)];
    let mut left = count;
    while left > 0 {
        let most = left.min(chunk.len());
        match source.read(&mut chunk[..most])? {
            0 => return Err(format!("{left} bytes are missing").into()),
            read => left -= read,
        }
    }
    Ok(())
}

fn write_exactly(target: &mut impl Write, count: usize) -> Fallible<()> {
    let chunk = vec![7; CHUNK.min(count)];
    let mut left = count;
    while left > 0 {
        let part = left.min(chunk.len());
        target.write_all(&chunk[..part])?;
        left -= part;
    }
    Ok(target.flush()?)
}
