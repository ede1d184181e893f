//! What the scripted model servers of the agent programs say: session by session, turn by turn.

use std::collections::HashMap;
use std::sync::Mutex;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::Value;

/// One turn of the model.
#[derive(Clone, Debug)]
pub enum Turn {
    /// It has a shell command run.
    Run(String),
    /// It uses a tool of the program's by name.
    Use { tool: &'static str, input: Value },
    /// It says this, and the session is over.
    Say(String),
    /// It refuses the request.
    Refuse(Refusal),
    /// It takes the request and says nothing.
    Hang,
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: u16,
    pub kind: &'static str,
    pub headers: Vec<(String, String)>,
}

impl Turn {
    /// A shell command.
    pub fn run(command: impl Into<String>) -> Self {
        Self::Run(command.into())
    }

    /// The last words.
    pub fn say(text: impl Into<String>) -> Self {
        Self::Say(text.into())
    }

    /// A refusal with this status and this word for its kind.
    pub fn refuse(status: u16, kind: &'static str) -> Self {
        Self::Refuse(Refusal {
            status,
            kind,
            headers: Vec::new(),
        })
    }

    /// The same refusal with one more header.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        let Self::Refuse(refusal) = &mut self else {
            panic!("only a refusal has headers of its own: {self:?}");
        };
        refusal.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A request that reached a server.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Which session it belongs to, from 0.
    pub session: usize,
    /// Which turn of that session it asks for, from 0.
    pub turn: usize,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Asked {
    /// A header's text; empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        super::header(&self.headers, name)
    }
}

type Script = Box<dyn FnMut(&Asked) -> Turn + Send>;

/// Answers by a script, and writes down what it was asked.
pub struct Teller {
    script: Mutex<Script>,
    sessions: Mutex<HashMap<String, usize>>,
    asked: Mutex<Vec<Asked>>,
}

impl Teller {
    /// Answers session by session, turn by turn. Asked for more, it refuses with 418, which no client retries.
    pub fn of(sessions: Vec<Vec<Turn>>) -> Self {
        Self::by(move |asked| {
            let turn = sessions
                .get(asked.session)
                .and_then(|turns| turns.get(asked.turn));
            turn.cloned()
                .unwrap_or_else(|| Turn::refuse(418, "the_script_is_over"))
        })
    }

    /// Decides by the request.
    pub fn by(script: impl FnMut(&Asked) -> Turn + Send + 'static) -> Self {
        Self {
            script: Mutex::new(Box::new(script)),
            sessions: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    /// The number of the session of this name.
    pub fn session(&self, name: &str) -> usize {
        let mut sessions = self.sessions.lock().unwrap();
        let next = sessions.len();
        *sessions.entry(name.to_owned()).or_insert(next)
    }

    /// The turn that follows.
    pub fn turn(&self, asked: Asked) -> Turn {
        let turn = (self.script.lock().unwrap())(&asked);
        self.asked.lock().unwrap().push(asked);
        turn
    }

    /// Everything that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// Server-sent events, each in a chunk of its own.
pub fn stream(events: Vec<Value>) -> Response {
    let chunk = |event: Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        Ok::<_, std::io::Error>(format!("event: {kind}\ndata: {event}\n\n"))
    };
    let chunks: Vec<_> = events.into_iter().map(chunk).collect();
    Response::builder()
        .header("content-type", "text/event-stream; charset=utf-8")
        .body(Body::from_stream(futures_util::stream::iter(chunks)))
        .unwrap()
}

/// A JSON body with a status.
pub fn json_body(status: u16, headers: &[(String, String)], body: &Value) -> Response {
    let mut response = Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("content-type", "application/json");
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body.to_string())).unwrap()
}
