//! A real HTTP server on loopback that keeps what it receives, and answers well or badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// What a receiver does with a request.
#[derive(Clone, Copy)]
pub enum Answer {
    Status(u16),
    Close,
    Hang,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Request {
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("no {name} in {self:?}"), |(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// An HTTP server on loopback that keeps what it receives.
pub struct Receiver {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Receiver {
    /// Answers as it is said here, the last answer for ever.
    pub fn answering(answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap().to_string(),
            requests: Arc::default(),
            answers: Arc::new(Mutex::new(answers.to_vec())),
        };
        let (requests, answers) = (receiver.requests.clone(), receiver.answers.clone());
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = read(&stream) else { continue };
                requests.lock().unwrap().push(request);
                let answer = {
                    let mut answers = answers.lock().unwrap();
                    if answers.len() > 1 {
                        answers.remove(0)
                    } else {
                        answers[0]
                    }
                };
                match answer {
                    Answer::Status(status) => {
                        let text =
                            format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                        let _ = stream.write_all(text.as_bytes());
                    }
                    Answer::Close => drop(stream),
                    Answer::Hang => open.push(stream),
                }
            }
        });
        receiver
    }

    /// The address of the server.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// An address on the server.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// What arrived so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Answers like this from now on.
    pub fn answer(&self, answer: Answer) {
        *self.answers.lock().unwrap() = vec![answer];
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |line: &String| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<(String, String)> = lines.iter().skip(1).filter_map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        line: lines.first()?.clone(),
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}
