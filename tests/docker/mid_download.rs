//! Ralph, whose process the gateway is a part of, is killed during a download: it ends, nothing leaves, and once the
//! run is taken up again the next request works.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::need;
use crate::sealed::outside;
use crate::site::{LEFT_BEHIND, Site};
use crate::support::ralph::{Live, doing, eventually, finish, in_place_of, run, script, whole_task};

#[tokio::test(flavor = "multi_thread")]
async fn a_download_ends_with_ralph_and_the_next_request_works_once_the_run_is_resumed() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    need!(can_mount());
    let server = Endless::start().await;
    let url = format!("http://allowed.test:{}", server.port);
    site.allow(&format!("allowed.test:{}", server.port), "127.0.0.1");
    let hosts = site.place.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost allowed.test\n").unwrap();

    // The iteration that is killed is begun again.
    let download = doing([run(&format!("curl --silent --fail {url}/ > ../home/part"))]);
    let answers = script([download, whole_task()]);
    let live = Live::start(&mut knowing(&hosts, &site.scripted(&answers)));
    let has_some = || site.find("home/part").is_some_and(|part| part.len() > 0);
    eventually("the download is on its way", has_some);
    live.signal("KILL");
    assert_eq!(live.wait().code, None);

    eventually("the download has ended", || server.ended.load(Ordering::SeqCst));
    for container in site.containers() {
        assert!(!outside(&["exec", &container, "curl", "--silent", "--max-time", "5", &url]).await);
    }
    assert_eq!(server.asked(), 1);

    finish(&mut knowing(&hosts, &site.ralph(&["resume"]))).expect(0, &["done: "]);
    assert_eq!((server.asked(), server.greeted.load(Ordering::SeqCst)), (2, 1));
    site.expect_nothing_left();
}

/// The same command, in a process to which these hosts are known.
fn knowing(hosts: &Path, command: &Command) -> Command {
    let mut inside = Command::new("unshare");
    inside
        .args([
            "--mount",
            "sh",
            "-ec",
            "mount --bind \"$0\" /etc/hosts; exec \"$@\"",
        ])
        .arg(hosts)
        .arg(command.get_program())
        .args(command.get_args());
    in_place_of(&mut inside, command);
    inside
}

/// Whether a process can have files of its own in place of the system's.
fn can_mount() -> Result<(), String> {
    let tried = Command::new("unshare").args(["--mount", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err("no mount namespace can be made".to_owned()),
    }
}

/// Answers the first request with a download that comes to no end, and the others with `hello`.
#[derive(Clone, Default)]
struct Endless {
    port: u16,
    asked: Arc<AtomicUsize>,
    /// How many others were answered to their end.
    greeted: Arc<AtomicUsize>,
    /// Whether the download was ended by the client.
    ended: Arc<AtomicBool>,
}

impl Endless {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            ..Self::default()
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().answer(stream));
            }
        });
        server
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    async fn answer(self, mut stream: TcpStream) {
        // The gateway is there before it knows what is asked for, and may go again without a word.
        if !matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {
            return;
        }
        if self.asked.fetch_add(1, Ordering::SeqCst) > 0 {
            let hello = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
            let greeted = stream.write_all(hello.as_bytes()).await.is_ok();
            self.greeted.fetch_add(usize::from(greeted), Ordering::SeqCst);
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes()).await;
        while sent.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            sent = stream.write_all(&[b'.'; 4096]).await;
        }
        self.ended.store(true, Ordering::SeqCst);
    }
}
