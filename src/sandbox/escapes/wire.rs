//! Messages as they are on the wire, no better than an attacker would make them.

/// A query of DNS for a name, of any type.
pub(super) fn query(name: &str, kind: u16) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| counted::<1>(label.as_bytes()));
    let mut bytes = vec![b'r', b'e', 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(labels);
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// A query as it goes over a connection.
pub(super) fn query_over_tcp(name: &str, kind: u16) -> Vec<u8> {
    counted::<2>(&query(name, kind))
}

/// The hello of a TLS client that asks for this name, or for none.
pub(super) fn hello(name: Option<&str>) -> Vec<u8> {
    const SERVER_NAME: [u8; 2] = [0, 0];
    const HOST_NAME: u8 = 0;
    let extension = name.map(|name| {
        let entry = [vec![HOST_NAME], counted::<2>(name.as_bytes())].concat();
        [SERVER_NAME.to_vec(), counted::<2>(&counted::<2>(&entry))].concat()
    });
    let body = [
        vec![3, 3],
        vec![7; 32],
        vec![0],
        vec![0, 2, 0x13, 0x01],
        vec![1, 0],
        counted::<2>(&extension.unwrap_or_default()),
    ]
    .concat();
    let message = [vec![1], counted::<3>(&body)].concat();
    [vec![22, 3, 1], counted::<2>(&message)].concat()
}

/// Bytes with their length before them, in this many bytes.
fn counted<const WIDTH: usize>(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len().to_be_bytes();
    [&length[length.len() - WIDTH..], bytes].concat()
}
