//! A container engine that only says what it is, or nothing.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Answers every request with its version, until the test ends. Returns the value of `DOCKER_HOST`.
pub fn answering(dir: &Path) -> String {
    let (listener, address) = silent(dir);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap());
        }
    });
    address
}

/// Accepts connections, while the listener lives, and never answers.
pub fn silent(dir: &Path) -> (UnixListener, String) {
    let path = dir.join("engine.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (listener, format!("unix://{}", path.display()))
}

fn answer(mut stream: UnixStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        request.extend(byte);
    }
    let body = r#"{"Version":"77.1","ApiVersion":"1.47","Arch":"amd64","Os":"linux"}"#;
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}
