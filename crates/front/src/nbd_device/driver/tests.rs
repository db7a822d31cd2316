use std::fs::File;

use super::*;

/// `NBD_ATTR_SOCKETS` holds one `NBD_SOCK_ITEM` a connection, and that an `NBD_SOCK_FD`.
#[test]
fn each_connection_is_an_attribute_of_its_own() {
    let sockets: Vec<OwnedFd> =
        (0..2).map(|_| File::open("/dev/null").expect("it is there").into()).collect();
    let list = with_sockets(Attributes::default().u32(1, 5), &sockets);
    let item = |socket: &OwnedFd| {
        let descriptor = socket.as_raw_fd().cast_unsigned().to_ne_bytes();
        [
            &12u16.to_ne_bytes()[..],
            &1u16.to_ne_bytes(),
            &8u16.to_ne_bytes(),
            &1u16.to_ne_bytes(),
            &descriptor,
        ]
        .concat()
    };
    let expected: Vec<u8> = sockets.iter().flat_map(item).collect();
    assert_eq!(list.find(7), Some(&expected[..]));
    assert_eq!(list.find(1), Some(&5u32.to_ne_bytes()[..]));
}
