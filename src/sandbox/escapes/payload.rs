//! Bytes that attacks send.

/// A DNS query for a name, of any record type.
pub(super) fn dns_query(name: &str, record_type: u16) -> Vec<u8> {
    let labels = name
        .split('.')
        .flat_map(|label| length_prefixed::<1>(label.as_bytes()));
    let mut bytes = vec![b'r', b'e', 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(labels);
    bytes.push(0);
    bytes.extend(record_type.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// A DNS query with the length prefix of DNS over TCP.
pub(super) fn dns_query_over_tcp(name: &str, record_type: u16) -> Vec<u8> {
    length_prefixed::<2>(&dns_query(name, record_type))
}

/// A TLS client hello with or without a server name.
pub(super) fn client_hello(server_name: Option<&str>) -> Vec<u8> {
    const SERVER_NAME: [u8; 2] = [0, 0];
    const HOST_NAME: u8 = 0;
    let extension = server_name.map(|name| {
        let entry = [vec![HOST_NAME], length_prefixed::<2>(name.as_bytes())].concat();
        let list = length_prefixed::<2>(&length_prefixed::<2>(&entry));
        [SERVER_NAME.to_vec(), list].concat()
    });
    let body = [
        vec![3, 3],
        vec![7; 32],
        vec![0],
        vec![0, 2, 0x13, 0x01],
        vec![1, 0],
        length_prefixed::<2>(&extension.unwrap_or_default()),
    ]
    .concat();
    let message = [vec![1], length_prefixed::<3>(&body)].concat();
    [vec![22, 3, 1], length_prefixed::<2>(&message)].concat()
}

fn length_prefixed<const WIDTH: usize>(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len().to_be_bytes();
    [&length[length.len() - WIDTH..], bytes].concat()
}
