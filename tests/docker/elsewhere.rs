//! An address that stands for the internet, and who listens there.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketType, ipproto};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// A documentation address (TEST-NET-3) that the host has for a while, with listeners: it stands for the internet.
pub struct Elsewhere {
    address: Ipv4Addr,
    received: Arc<AtomicUsize>,
}

impl Elsewhere {
    pub async fn new() -> Result<Self, String> {
        let host = 1 + u32::from(number()) % 250;
        let elsewhere = Self {
            address: Ipv4Addr::from_bits(Ipv4Addr::new(203, 0, 113, 0).to_bits() + host),
            received: Arc::default(),
        };
        ip("add", elsewhere.address)?;
        for port in [80, 443, 8080] {
            let (listener, received) = (bind(elsewhere.address, port).await?, elsewhere.received.clone());
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    received.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n").await;
                }
            });
        }
        for port in [53, 443] {
            let socket = tokio::net::UdpSocket::bind((elsewhere.address, port)).await;
            let (socket, received) = (
                socket.map_err(|error| error.to_string())?,
                elsewhere.received.clone(),
            );
            tokio::spawn(async move {
                while socket.recv(&mut [0; 512]).await.is_ok() {
                    received.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Ok(elsewhere)
    }

    /// Checks that its listeners receive what the host sends, and resets the count.
    pub async fn check_receives_from_host(&self) {
        TcpStream::connect((self.address, 8080)).await.unwrap();
        let sender = tokio::net::UdpSocket::bind("0.0.0.0:0").await.unwrap();
        sender.send_to(b"?", (self.address, 53)).await.unwrap();
        for _ in 0..6000 {
            if self.received() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.received.swap(0, Ordering::SeqCst), 2);
    }

    pub fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }

    /// A text with the address in one of its spellings.
    pub fn spelled(&self, text: &str) -> String {
        let [a, b, c, d] = self.address.octets();
        text.replace("{address}", &self.address.to_string())
            .replace("{decimal}", &self.address.to_bits().to_string())
            .replace("{hex}", &format!("0x{:08x}", self.address.to_bits()))
            .replace("{octal}", &format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"))
            .replace("{short}", &format!("{a}.{b}.{}", u16::from_be_bytes([c, d])))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = ip("del", self.address);
    }
}

/// Receives echo requests (ICMP) to such an address.
pub struct Echoes {
    address: Ipv4Addr,
    socket: OwnedFd,
}

impl Echoes {
    /// The least that is one, with its checksum.
    const REQUEST: [u8; 8] = [8, 0, 0xf7, 0xfe, 0, 0, 0, 1];

    /// Needs the right to receive whole packets.
    pub fn at(elsewhere: &Elsewhere) -> Result<Self, String> {
        let opened = net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
        let socket = opened.map_err(|error| format!("a socket for ICMP: {error}"))?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| error.to_string())?;
        Ok(Self {
            address: elsewhere.address,
            socket,
        })
    }

    /// Checks that it receives what the host sends, and resets the count.
    pub fn check_receives_from_host(&self) {
        let to = SocketAddrV4::new(self.address, 0);
        net::sendto(&self.socket, &Self::REQUEST, SendFlags::empty(), &to).unwrap();
        for _ in 0..6000 {
            if self.received() > 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("an echo request of the host does not arrive");
    }

    /// How many came since.
    pub fn received(&self) -> usize {
        let mut count = 0;
        let mut packet = [0; 1500];
        while let Ok((length, _)) = net::recv(&self.socket, &mut packet[..], RecvFlags::empty()) {
            // Twenty bytes of IP come first, the last four of which are where it goes.
            let is_request = packet[..length]
                .get(16..21)
                .is_some_and(|part| part[..4] == self.address.octets() && part[4] == Self::REQUEST[0]);
            count += usize::from(is_request);
        }
        count
    }
}

fn ip(verb: &str, address: Ipv4Addr) -> Result<(), String> {
    let address = format!("{address}/32");
    let done = Command::new("ip")
        .args(["address", verb, &address, "dev", "lo"])
        .output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("ip: {}", String::from_utf8_lossy(&done.stderr)))
    }
}

/// Different for every world of this process, and most likely for other processes' too.
pub fn number() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 500).unwrap() * 97;
    first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 65_000
}

pub async fn bind(address: Ipv4Addr, port: u16) -> Result<TcpListener, String> {
    let address = SocketAddr::from((address, port));
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("{address}: {error}"))
}
