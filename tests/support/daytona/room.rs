//! The sandboxes of the fake: containers, or namespaces if very many are needed.

use std::pin::Pin;

use axum::body::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use ralph::engine::Engine;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::container::{self, Container};
use super::namespaces::Namespaces;

/// What the sandboxes of a fake are made of.
pub enum Ground {
    /// A container engine, with its images.
    Engine(Box<Engine>),
    /// The host. All images are the host itself.
    Namespaces,
}

/// One sandbox.
#[derive(Clone)]
pub enum Room {
    Container(Container),
    Namespaces(Namespaces),
    /// Nothing, because its image could not be built.
    Nowhere,
}

/// A running command.
pub struct Running {
    pub output: BoxStream<'static, Piece>,
    pub input: Pin<Box<dyn AsyncWrite + Send>>,
    pub code: BoxFuture<'static, i64>,
}

/// A piece of output.
pub enum Piece {
    Output(Bytes),
    Error(Bytes),
}

/// The result of a command.
pub struct Ended {
    pub code: i64,
    pub output: Vec<u8>,
}

impl Ground {
    /// Whether the image exists.
    pub async fn has(&self, image: &str) -> bool {
        match self {
            Self::Engine(engine) => engine.image(image).await.is_ok_and(|found| found.is_some()),
            Self::Namespaces => true,
        }
    }

    /// Builds an image.
    pub async fn build(&self, dockerfile: &str, contexts: &[Bytes]) -> Result<String, String> {
        match self {
            Self::Engine(engine) => container::build(engine, dockerfile, contexts).await,
            Self::Namespaces => Ok(String::new()),
        }
    }

    /// Starts a room of this image. The error says why that failed.
    pub async fn room(&self, image: &str, env: &[String]) -> Result<Room, String> {
        match self {
            Self::Engine(engine) => Container::make(engine, image, env).await.map(Room::Container),
            Self::Namespaces => Namespaces::make(env).await.map(Room::Namespaces),
        }
    }
}

impl Room {
    pub async fn stop(&self) {
        match self {
            Self::Container(room) => room.stop().await,
            Self::Namespaces(room) => room.end(),
            Self::Nowhere => {}
        }
    }

    pub async fn start(&self) {
        match self {
            Self::Container(room) => room.start().await,
            Self::Namespaces(_) | Self::Nowhere => panic!("there is nothing to start"),
        }
    }

    pub async fn remove(&self) {
        match self {
            Self::Container(room) => room.remove().await,
            Self::Namespaces(room) => room.end(),
            Self::Nowhere => {}
        }
    }

    /// Like [`Room::remove`], without await.
    pub fn remove_now(&self) {
        match self {
            Self::Container(room) => room.remove_now(),
            Self::Namespaces(room) => room.end(),
            Self::Nowhere => {}
        }
    }

    /// Starts a command.
    pub async fn start_command(&self, argv: &[&str]) -> Running {
        match self {
            Self::Container(room) => room.start_command(argv).await,
            Self::Namespaces(room) => room.start_command(argv),
            Self::Nowhere => panic!("there is nothing to run in"),
        }
    }

    /// Runs a shell script to its end, with this input.
    pub async fn script(&self, script: &str, args: &[&str], input: &[u8]) -> Ended {
        let words = [&["/bin/sh", "-c", script, "sh"], args].concat();
        let Running {
            output: mut printed,
            input: mut stdin,
            code,
        } = self.start_command(&words).await;
        let mut output = Vec::new();
        // What it reads ends when no process can write to it any more.
        let feed = async move {
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
        };
        let take = async {
            while let Some(piece) = printed.next().await {
                output.extend_from_slice(&piece.into_bytes());
            }
        };
        tokio::join!(feed, take);
        Ended {
            code: code.await,
            output,
        }
    }
}

impl Piece {
    /// The bytes of either stream.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Output(bytes) | Self::Error(bytes) => bytes,
        }
    }
}
