//! A relay that keeps the rules or breaks them, and a real gateway.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Mutex;

use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;
use tokio::io::DuplexStream;

use super::*;
use crate::gateway::GatewaySetup;
use crate::gateway::audit::AuditRecord;
use crate::guest::relay_protocol::{FIRST_WINDOW, FULL_WINDOW, MAX_CONNECTIONS, MAX_UNSENT};
use crate::network::Policy;

const DESTINATION: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 80);
const UDP: u32 = 0;
const HTTP: u16 = 1;
const TLS: u16 = 2;
/// More than a new connection has credit for.
static TOO_MUCH: [u8; FIRST_WINDOW + 1] = [0; FIRST_WINDOW + 1];
/// The policy of the gateway denies it.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: denied.test\r\nConnection: close\r\n\r\n";

/// The far end of a [`RelayConnection`].
struct FakeRelay {
    stream: DuplexStream,
    decoder: FrameDecoder,
}

/// A connection to a fake relay, with its gateway.
struct RelayTest {
    connection: RelayConnection,
    relay: FakeRelay,
    _gateway: Arc<Gateway>,
}

impl RelayTest {
    async fn new() -> Self {
        let (near, stream) = tokio::io::duplex(64 * 1024);
        let mut relay = FakeRelay {
            stream,
            decoder: RelayFrame::decoder(),
        };
        relay.send(0, RelayFrame::Hello(VERSION)).await;
        let (from_relay, to_relay) = tokio::io::split(near);
        let mut connection = RelayConnection::open(from_relay, to_relay).await.unwrap();
        let audit: Arc<Mutex<Vec<AuditRecord>>> = Arc::default();
        let gateway = Arc::new(Gateway::new(GatewaySetup::new(Policy::deny(), audit)));
        let listeners = vec![
            (ListenerTransport::Udp, ListenerProtocol::Dns),
            (ListenerTransport::Tcp, ListenerProtocol::Http { port: 80 }),
            (ListenerTransport::Tcp, ListenerProtocol::Tls { port: 443 }),
        ];
        connection.serve(&gateway, listeners);
        Self {
            connection,
            relay,
            _gateway: gateway,
        }
    }

    async fn is_closed(&mut self) -> bool {
        // The relay may see the end of its streams before or after.
        timeout(TIMEOUT, self.connection.closed()).await.is_ok()
    }
}

impl FakeRelay {
    async fn send(&mut self, id: u32, frame: RelayFrame<'_>) {
        let mut bytes = Vec::new();
        frame.append_to(id, &mut bytes).unwrap();
        // The other end may have closed already.
        let _ = self.stream.write_all(&bytes).await;
    }

    async fn open(&mut self, id: u32, listener: u16) {
        let destination = DESTINATION;
        self.send(
            id,
            RelayFrame::Opened {
                listener,
                destination,
            },
        )
        .await;
    }

    /// The next frame as text, and its data.
    async fn next(&mut self) -> (u32, String, Vec<u8>) {
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                let id = frame.id;
                return match RelayFrame::decode(frame).unwrap() {
                    RelayFrame::Data(bytes) => (id, "Data".to_owned(), bytes.to_owned()),
                    RelayFrame::Datagram(datagram) => (id, "Datagram".to_owned(), datagram.bytes.to_owned()),
                    other => (id, format!("{other:?}"), Vec::new()),
                };
            }
            read_more(&mut self.stream, &mut self.decoder).await.unwrap();
        }
    }
}

#[tokio::test]
async fn connections_are_served_side_by_side() {
    let mut test = RelayTest::new().await;
    for id in [1, 2] {
        test.relay.open(id, HTTP).await;
    }
    // In pieces, and the second one first.
    for id in [2, 1] {
        for piece in REQUEST.chunks(7) {
            test.relay.send(id, RelayFrame::Data(piece)).await;
        }
        let (from, _, answer) = test.relay.next().await;
        assert_eq!(from, id);
        assert!(
            answer.starts_with(b"HTTP/1.1 403"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        assert_eq!(test.relay.next().await, (id, "End".to_owned(), Vec::new()));
        test.relay.send(id, RelayFrame::End).await;
    }
    // Frames that were in flight when the connections ended do no harm.
    test.relay.send(1, RelayFrame::Reset).await;
    test.relay.open(3, HTTP).await;
    test.relay.send(3, RelayFrame::Data(REQUEST)).await;
    assert_eq!(test.relay.next().await.0, 3);
}

#[tokio::test]
async fn a_request_gets_the_response_of_the_holder() {
    let mut test = RelayTest::new().await;
    let request = HolderRequest::Describe;
    let (response, ()) = tokio::join!(test.connection.request(&request), async {
        assert_eq!(
            test.relay.next().await.1,
            format!("{:?}", RelayFrame::Control(b"describe\n"))
        );
        test.relay.send(0, RelayFrame::Control(b"done\nup lo\n")).await;
    });
    assert_eq!(response.unwrap(), "up lo\n");
    let (response, ()) = tokio::join!(test.connection.request(&request), async {
        test.relay.next().await;
        test.relay
            .send(0, RelayFrame::Control(b"failed\nno such table"))
            .await;
    });
    assert!(matches!(response, Err(SealError::Failed(reason)) if reason == "no such table"));
}

#[tokio::test]
async fn a_dns_query_is_answered_to_its_sender() {
    let mut test = RelayTest::new().await;
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x06denied\x04test\0\0\x01\0\x01";
    let datagram = Datagram {
        client: DESTINATION,
        server: Ipv4Addr::new(8, 8, 8, 8),
        bytes: query,
    };
    test.relay.send(UDP, RelayFrame::Datagram(datagram)).await;
    let (listener, kind, answer) = test.relay.next().await;
    assert_eq!((listener, kind.as_str()), (UDP, "Datagram"));
    assert_eq!(answer[..2], query[..2]);
    assert_eq!(answer[3] & 0xf, 3, "the name must not exist");
}

/// The bytes that follow the greeting of a relay that breaks the rules.
#[rstest]
#[case::garbage(&[0xff; 64])]
#[case::unknown_kind(&[200, 0, 0, 0, 1, 0, 0, 0, 0])]
#[case::too_long(&[35, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff])]
#[tokio::test]
async fn malformed_bytes_close_the_relay(#[case] bytes: &[u8]) {
    let mut test = RelayTest::new().await;
    test.relay.stream.write_all(bytes).await.unwrap();
    assert!(test.is_closed().await);
}

#[rstest]
#[case::second_hello(0, RelayFrame::Hello(VERSION))]
#[case::number_is_skipped(3, RelayFrame::Opened { listener: HTTP, destination: DESTINATION })]
#[case::number_is_used_again(1, RelayFrame::Opened { listener: HTTP, destination: DESTINATION })]
#[case::no_such_listener(2, RelayFrame::Opened { listener: 9, destination: DESTINATION })]
#[case::connection_of_a_datagram_listener(2, RelayFrame::Opened { listener: 0, destination: DESTINATION })]
#[case::data_of_no_connection(9, RelayFrame::Data(b"x"))]
#[case::data_without_credit(1, RelayFrame::Data(&TOO_MUCH))]
#[case::credit_beyond_all_memory(1, RelayFrame::Credit(u32::MAX))]
#[case::close(1, RelayFrame::Close)]
#[case::response_without_a_request(0, RelayFrame::Control(b"done\n"))]
#[case::datagram_of_another_listener(1, RelayFrame::Datagram(Datagram { client: DESTINATION, server: Ipv4Addr::LOCALHOST, bytes: b"" }))]
#[tokio::test]
async fn a_frame_that_breaks_a_rule_closes_the_relay(#[case] id: u32, #[case] frame: RelayFrame<'_>) {
    let mut test = RelayTest::new().await;
    test.relay.open(1, TLS).await;
    test.relay.send(id, frame).await;
    assert!(test.is_closed().await);
    assert!(test.connection.request(&HolderRequest::Describe).await.is_err());
}

#[tokio::test]
async fn data_after_the_end_closes_the_relay() {
    let mut test = RelayTest::new().await;
    test.relay.open(1, TLS).await;
    test.relay.send(1, RelayFrame::End).await;
    test.relay.send(1, RelayFrame::Data(b"x")).await;
    assert!(test.is_closed().await);
}

#[tokio::test]
async fn the_end_of_the_stream_closes_every_connection() {
    let mut test = RelayTest::new().await;
    test.relay.open(1, TLS).await;
    test.relay.send(1, RelayFrame::Data(b"\x16\x03")).await;
    let demultiplexer = test.connection.demultiplexer.clone();
    while demultiplexer.connections() == 0 {
        tokio::task::yield_now().await;
    }
    test.relay.stream.shutdown().await.unwrap();
    assert!(test.is_closed().await);
    while demultiplexer.connections() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_gateway_bounds_how_many_connections_there_are() {
    let test = RelayTest::new().await;
    let demultiplexer = test.connection.demultiplexer.clone();
    let opened = u32::try_from(MAX_CONNECTIONS * 5).unwrap();
    let (mut from_ralph, mut to_ralph) = tokio::io::split(test.relay.stream);
    let read = async {
        let (mut decoder, mut closed) = (RelayFrame::decoder(), 0);
        // All but those that the gateway has slots for.
        while closed < opened - 1024 {
            read_more(&mut from_ralph, &mut decoder).await.unwrap();
            while let Some(frame) = decoder.next().unwrap() {
                closed += u32::from(matches!(
                    RelayFrame::decode(frame).unwrap(),
                    RelayFrame::Close | RelayFrame::Reset
                ));
            }
            assert!(demultiplexer.connections() <= MAX_CONNECTIONS);
        }
    };
    let write = async {
        for id in 1..=opened {
            let mut bytes = Vec::new();
            let frame = RelayFrame::Opened {
                listener: TLS,
                destination: DESTINATION,
            };
            frame.append_to(id, &mut bytes).unwrap();
            to_ralph.write_all(&bytes).await.unwrap();
        }
    };
    timeout(TIMEOUT * 6, async { tokio::join!(read, write) })
        .await
        .unwrap();
    assert!(demultiplexer.connections() <= 1024);
}

/// Time stands still while anything can go on, so that the timeout passes when everything is stalled.
#[tokio::test(start_paused = true)]
async fn a_relay_that_does_not_read_is_not_read_either() {
    let mut test = RelayTest::new().await;
    // Most are closed at once by frames that this relay does not read.
    for id in 1..1_000_000 {
        if timeout(Duration::from_secs(1), test.relay.open(id, TLS))
            .await
            .is_err()
        {
            let unsent = test.connection.demultiplexer.unsent_bytes();
            assert!(unsent > MAX_UNSENT && unsent < MAX_UNSENT * 2, "{unsent}");
            return;
        }
    }
    panic!("everything was read");
}

#[derive(Clone, Debug)]
enum Sent {
    Frame(u8, u32, Vec<u8>),
    Bytes(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        9 => (32u8..42, 0u32..5, vec(any::<u8>(), 0..40)).prop_map(|(kind, id, payload)| Sent::Frame(kind, id, payload)),
        1 => vec(any::<u8>(), 0..40).prop_map(Sent::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a relay sends, ralph does not panic, and holds no more than the windows of its connections.
    #[test]
    fn arbitrary_frames_do_no_harm(all in vec(sent(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut test = RelayTest::new().await;
            for id in 1..4 {
                test.relay.open(id, if id == 1 { HTTP } else { TLS }).await;
            }
            for sent in all {
                let mut bytes = Vec::new();
                match sent {
                    Sent::Frame(kind, id, payload) => {
                        let frame = crate::guest::frame::Frame { kind, id, payload: &payload };
                        frame.append_to(&mut bytes).unwrap();
                    }
                    Sent::Bytes(raw) => bytes = raw,
                }
                let _ = test.relay.stream.write_all(&bytes).await;
            }
            tokio::task::yield_now().await;
            assert!(test.connection.demultiplexer.received_bytes() <= 4 * FULL_WINDOW);
            drop(test.relay);
            test.connection.closed().await;
        });
    }
}
