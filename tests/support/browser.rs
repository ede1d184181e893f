//! A Chromium without a window, driven over `WebDriver`, and the dashboard that it looks at.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::ralph::{Place, eventually, waited_for};

/// The key of an element in answers of `WebDriver`.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser; ended when dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. Fails where Chromium or its driver is missing.
    pub fn start() -> Result<Self, String> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver: {error}"))?;
        let profile = tempfile::tempdir().unwrap();
        let dir = profile.path().display().to_string();
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
            _profile: profile,
        };
        eventually("chromedriver answers", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
                format!("--user-data-dir={dir}"),
            ]},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let started = browser.driver_call("POST", "/session", &capabilities);
        let session = started["sessionId"].as_str();
        let session = session.ok_or_else(|| format!("Chromium does not start: {started}"))?;
        session.clone_into(&mut browser.session);
        Ok(browser)
    }

    fn driver_call(&self, method: &str, path: &str, body: &Value) -> Value {
        let text = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{text}",
            self.port,
            text.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let answer = read_answer(&mut BufReader::new(stream));
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"));
        answer["value"].clone()
    }

    fn call(&self, path: &str, body: &Value) -> Value {
        self.driver_call("POST", &format!("/session/{}/{path}", self.session), body)
    }

    pub fn open(&self, url: &str) {
        let answer = self.call("url", &json!({"url": url}));
        assert!(answer.is_null(), "{url}: {answer}");
    }

    /// The result of a script.
    pub fn eval(&self, script: &str) -> Value {
        self.call("execute/sync", &json!({"script": script, "args": []}))
    }

    /// The result that a script gives to its last argument, a function, at any time.
    pub fn eval_later(&self, script: &str) -> Value {
        self.call("execute/async", &json!({"script": script, "args": []}))
    }

    /// The text of the page, or of a part of it.
    pub fn text(&self, selector: &str) -> String {
        let script = format!(
            "return document.querySelector({})?.innerText ?? ''",
            json!(selector)
        );
        self.eval(&script).as_str().unwrap_or_default().to_owned()
    }

    pub fn path(&self) -> String {
        let path = self.eval("return location.pathname + location.search");
        path.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a part of the page has this text.
    pub fn wait_for_text(&self, selector: &str, said: &str) {
        assert!(
            waited_for(|| self.text(selector).contains(said)),
            "{said:?} is not in {selector} of {}: {}",
            self.path(),
            self.text("body")
        );
    }

    pub fn wait_for_path(&self, path: &str) {
        assert!(
            waited_for(|| self.path() == path),
            "the page is {} in place of {path}: {}",
            self.path(),
            self.text("body")
        );
    }

    fn element(&self, selector: &str) -> String {
        let found = self.call("element", &json!({"using": "css selector", "value": selector}));
        let element = found[ELEMENT].as_str();
        element
            .unwrap_or_else(|| panic!("no {selector} on {}: {found}", self.path()))
            .to_owned()
    }

    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        let answer = self.call(&format!("element/{element}/click"), &json!({}));
        assert!(answer.is_null(), "{selector}: {answer}");
    }

    pub fn type_text(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.call(&format!("element/{element}/clear"), &json!({}));
        let answer = self.call(&format!("element/{element}/value"), &json!({"text": text}));
        assert!(answer.is_null(), "{selector}: {answer}");
    }

    /// Presses keys on the page itself.
    pub fn press(&self, keys: &str) {
        let element = self.element("body");
        self.call(&format!("element/{element}/value"), &json!({"text": keys}));
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.call("window/rect", &json!({"width": width, "height": height}));
    }

    /// Chooses light or dark, as the system of a person would.
    pub fn colour_scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// A command of the developer tools.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.call("goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Keeps a picture of the page.
    pub fn screenshot(&self, file: &Path) {
        use base64::Engine as _;
        let picture = self.driver_call(
            "GET",
            &format!("/session/{}/screenshot", self.session),
            &json!({}),
        );
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture.as_str().unwrap());
        fs::write(file, bytes.unwrap()).unwrap();
    }

    /// What the browser complained about since the last time: errors of scripts, refused loads, violated policies.
    pub fn complaints(&self) -> Vec<String> {
        let entries = self.call("se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        let is_serious = |entry: &&Value| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING"));
        entries.iter().filter(is_serious).map(Value::to_string).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.driver_call("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The body of an answer. The driver keeps its connections open, so its length says where it ends.
fn read_answer(stream: &mut BufReader<TcpStream>) -> String {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8_lossy(&body).into_owned()
}

/// A `ralph dashboard` over the runs of a place; ended when dropped.
pub struct Dashboard {
    child: Child,
    pub address: String,
    /// The link that logs in once.
    pub link: String,
}

impl Dashboard {
    pub fn start(place: &Place) -> Self {
        Self::start_on(place, "127.0.0.1:0")
    }

    /// Starts it on an address, as after a restart.
    pub fn start_on(place: &Place, listen: &str) -> Self {
        let said = place.path().join(format!("dashboard-{}.log", fastrand::u64(..)));
        let mut child = place
            .ralph(&["dashboard", "--no-open", "--workers", "0", "--listen", listen])
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut text = String::new();
        eventually("the dashboard listens", || {
            text = fs::read_to_string(&said).unwrap();
            text.contains("Ctrl-C") || child.try_wait().unwrap().is_some()
        });
        let link = text
            .split_whitespace()
            .find(|word| word.contains("/login?secret="));
        let link = link.unwrap_or_else(|| panic!("{text}")).to_owned();
        let address = link
            .trim_start_matches("http://")
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        Self { child, address, link }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Logs a browser in.
    pub fn log_in(&self, browser: &Browser) {
        browser.open(&self.link);
        browser.click("button.primary");
        browser.wait_for_path("/");
    }

    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.end();
    }
}
