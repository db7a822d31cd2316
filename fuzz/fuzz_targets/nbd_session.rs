#![no_main]

#[path = "../../crates/front/tests/nbd/ram.rs"]
#[allow(dead_code, reason = "the tests look at more of it")]
mod ram;

use ram::Server;

// The first byte says where the stream is cut, and whether TLS is required: one stream has one answer, however it arrives.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&cut, stream)) = input.split_first() else { return };
    let server = || if cut & 0x80 != 0 { Server::requiring_tls() } else { Server::new() };
    let mut whole = server();
    whole.receive(stream);
    let mut pieces = server();
    for piece in stream.chunks(usize::from(cut & 0x7f) + 1) {
        pieces.receive(piece);
    }
    assert!(whole.take_output() == pieces.take_output(), "the answer depends on the cut");
});
