//! A `ralph serve` process, and a client that sends exactly what a test says.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

pub use crate::support::ralph::user_file;
use crate::support::ralph::{Place, eventually, script, whole_task};

/// A service over the runs of a place; ended when dropped.
pub struct Service {
    pub place: Place,
    child: Child,
    pub address: String,
    /// A token with all scopes.
    pub token: String,
}

impl Service {
    /// Serves the runs of this place on a free port of loopback.
    pub fn start(place: Place) -> Self {
        let token = create_token(&place, "tester", "admin");
        let (child, address) = serve(&place, "127.0.0.1:0");
        Self {
            place,
            child,
            address,
            token,
        }
    }

    /// Like [`Service::start`], and works on queued runs.
    pub fn working(place: Place, args: &[&str]) -> Self {
        let token = create_token(&place, "tester", "admin");
        let (child, address) = serve_working(&place, args);
        Self {
            place,
            child,
            address,
            token,
        }
    }

    /// Ends the service and starts it again, so that it works on queued runs.
    pub fn restart_working(&mut self, args: &[&str]) {
        self.end();
        (self.child, self.address) = serve_working(&self.place, args);
    }

    /// Sends a signal to the service, by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end of the service. Returns its exit code and what it printed.
    pub fn wait(&mut self) -> (Option<i32>, String) {
        eventually("the service ends", || self.child.try_wait().unwrap().is_some());
        (self.child.wait().unwrap().code(), self.printed())
    }

    /// What it printed so far.
    pub fn printed(&self) -> String {
        fs::read_to_string(log_of(&self.place, &self.child)).unwrap()
    }

    /// Starts the service again on another port.
    pub fn restart(&mut self) {
        self.end();
        (self.child, self.address) = serve(&self.place, "127.0.0.1:0");
    }

    /// Ends the service.
    pub fn stop(&mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends these bytes and reads the answer.
    pub fn raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        exchange(&mut stream, request)
    }

    /// A request with the token of this service.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.ask_as(&self.token, method, path, body)
    }

    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let headers = format!("Host: {}\r\nAuthorization: Bearer {token}\r\n", self.address);
        self.raw(&request(method, path, &headers, body))
    }

    /// The JSON that a path answers with.
    pub fn get(&self, path: &str) -> Value {
        self.ask("GET", path, None).expect(200)
    }

    /// The JSON that a POST is accepted with.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, Some(body))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts `ralph serve` without workers and waits until it listens. Returns the address, or the path of the socket.
pub fn serve(place: &Place, listen: &str) -> (Child, String) {
    let args = ["serve", "--workers", "0", "--listen", listen];
    serve_as(&mut place.ralph(&args), place)
}

fn serve_working(place: &Place, args: &[&str]) -> (Child, String) {
    let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
    serve_as(&mut place.ralph(&args), place)
}

/// Where a service prints to.
fn log_of(place: &Place, child: &Child) -> PathBuf {
    place.path().join(format!("serve-{}.log", child.id()))
}

fn serve_as(command: &mut Command, place: &Place) -> (Child, String) {
    let file = place.path().join(format!("serve-{}", fastrand::u64(..)));
    let mut child = command
        .stdout(Stdio::null())
        .stderr(fs::File::create(&file).unwrap())
        .spawn()
        .unwrap();
    let said = log_of(place, &child);
    fs::rename(file, &said).unwrap();
    let mut text = String::new();
    eventually("the service listens", || {
        text = fs::read_to_string(&said).unwrap();
        text.contains("Serving the API on ") || child.try_wait().unwrap().is_some()
    });
    let (_, address) = text
        .split_once("Serving the API on ")
        .unwrap_or_else(|| panic!("{text}"));
    let address = address
        .lines()
        .next()
        .unwrap()
        .trim_end_matches('.')
        .trim_start_matches("http://");
    (child, address.to_owned())
}

pub fn create_token(place: &Place, name: &str, scope: &str) -> String {
    let ended = place.run(&["api-token", "create", name, "--scope", scope]);
    ended.expect(0, &["not shown again"]);
    ended.stdout.trim().to_owned()
}

/// An HTTP/1.1 request that closes its connection.
pub fn request(method: &str, path: &str, headers: &str, body: Option<&Value>) -> String {
    let mut text = body.map(Value::to_string).unwrap_or_default();
    let kind = match method {
        "GET" | "DELETE" => {
            text.clear();
            String::new()
        }
        _ => format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            text.len()
        ),
    };
    format!("{method} {path} HTTP/1.1\r\n{headers}{kind}Connection: close\r\n\r\n{text}")
}

/// Sends a request over a socket file.
pub fn ask_socket(path: &str, request: &str) -> Answer {
    exchange(&mut UnixStream::connect(path).unwrap(), request)
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> Answer {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A refused body may end the connection before all of it was sent.
    let _ = stream.read_to_end(&mut answer);
    Answer::parse(&String::from_utf8_lossy(&answer))
}

/// What the service answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    /// The cookie that it sets, as a browser sends it back.
    pub cookie: Option<String>,
    pub body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        Self {
            status: status.unwrap_or_else(|| panic!("no answer: {text:?}")),
            headers: head.to_ascii_lowercase(),
            cookie: head
                .split_once("set-cookie: ")
                .and_then(|(_, cookie)| Some(cookie.split_once(';')?.0.to_owned())),
            body: if is_chunked { joined(body) } else { body.to_owned() },
        }
    }

    /// The JSON of the body, if the status is this one.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// Fails unless it is a problem with this status whose text has this in it.
    pub fn expect_problem(&self, status: u16, said: &str) -> Value {
        let problem = self.expect(status);
        assert!(self.headers.contains("application/problem+json"), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        let link = problem["type"].as_str().unwrap_or_default();
        assert!(link.contains("/docs/troubleshooting.md#"), "{self:?}");
        assert!(self.body.contains(said), "{said:?} is not in {self:?}");
        problem
    }
}

/// The bytes of a chunked body.
fn joined(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    whole
}

/// A place with a run that did the whole task.
pub fn done() -> Place {
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done: "]);
    place
}
