//! A provider of your own: it wraps another one and records every command that runs in its sandboxes.
//!
//! ```text
//! cargo run --example custom_provider
//! ```
//!
//! A provider for a new kind of sandbox implements the same calls; this one passes them on to `local`.
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

mod support;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ralph::exec::{Command, Exit, OutputSink};
use ralph::sandbox::local::{LocalOptions, LocalProvider};
use ralph::sandbox::{Capabilities, SandboxError, SandboxFiles};
use ralph::{Provider, Sandbox, SandboxSpec};

type Log = Arc<Mutex<Vec<String>>>;

/// A provider or a sandbox, and the commands that ran, oldest first.
struct Recorded<T> {
    inner: T,
    log: Log,
}

#[async_trait]
impl Provider for Recorded<LocalProvider> {
    fn name(&self) -> &'static str {
        "recorded"
    }
    /// A wrapper must not promise more than the sandbox that it wraps.
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let (inner, log) = (self.inner.create(spec).await?, self.log.clone());
        Ok(Box::new(Recorded { inner, log }))
    }
    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let (found, log) = (self.inner.reopen(spec).await?, self.log.clone());
        Ok(found.map(|inner| Box::new(Recorded { inner, log }) as Box<dyn Sandbox>))
    }
}

#[async_trait]
impl Sandbox for Recorded<Box<dyn Sandbox>> {
    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        if let Ok(mut log) = self.log.lock() {
            log.push(command.to_string());
        }
        self.inner.exec(command, output).await
    }
    // The rest is passed on as it is.
    fn id(&self) -> &str {
        self.inner.id()
    }
    fn root(&self) -> &Path {
        self.inner.root()
    }
    fn files(&self) -> &dyn SandboxFiles {
        self.inner.files()
    }
    async fn end_processes(&self) -> Result<(), SandboxError> {
        self.inner.end_processes().await
    }
    async fn start(&self) -> Result<(), SandboxError> {
        self.inner.start().await
    }
    async fn stop(&self) -> Result<(), SandboxError> {
        self.inner.stop().await
    }
    async fn preview(&self, port: u16) -> Result<Option<String>, SandboxError> {
        self.inner.preview(port).await
    }
    async fn close(&self) -> Result<(), SandboxError> {
        self.inner.close().await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let example = support::Example::new().await?;
    let inner = LocalProvider::new(LocalOptions {
        base: example.surroundings.runs()?.dir().to_owned(),
        path: example.surroundings.var("PATH").unwrap_or_default().to_owned(),
        passthrough: BTreeMap::new(),
    });
    let log = Log::default();
    let provider = Recorded {
        inner,
        log: log.clone(),
    };
    let outcome = example.builder().sandbox(provider).build().await?.run().await?;
    let commands = log.lock().unwrap_or_else(PoisonError::into_inner);
    commands.iter().for_each(|line| println!("{line}"));
    println!(
        "{:?} after {} commands in the sandbox",
        outcome.kind,
        commands.len()
    );
    Ok(())
}
