//! The handshake against bytes that a server might send, honest or not.

use super::*;

/// Gives bytes that were prepared, and keeps what is written.
struct Scripted {
    input: io::Cursor<Vec<u8>>,
    output: Vec<u8>,
}

impl Read for Scripted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.input.read(out)
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(INIT_MAGIC);
    bytes.put_u64(OPTION_MAGIC);
    bytes.put_u16(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    bytes
}

fn answer(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u64(OPTION_REPLY_MAGIC);
    bytes.put_u32(option::GO);
    bytes.put_u32(kind);
    bytes.put_u32(length_u32(data.len()));
    bytes.extend_from_slice(data);
    bytes
}

fn export_answer(bytes: u64, flags: u16) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u16(info::EXPORT);
    data.put_u64(bytes);
    data.put_u16(flags);
    answer(option_reply::INFO, &data)
}

fn blocks_answer(smallest: u32, most: u32) -> Vec<u8> {
    let mut data = Vec::new();
    data.put_u16(info::BLOCK_SIZE);
    data.put_u32(smallest);
    data.put_u32(4096);
    data.put_u32(most);
    answer(option_reply::INFO, &data)
}

fn go(parts: &[Vec<u8>]) -> io::Result<Export> {
    let uri = Uri::parse("nbd://host/data").unwrap();
    let server = Scripted { input: io::Cursor::new(parts.concat()), output: Vec::new() };
    Handshake(server).go(&uri, None)
}

#[test]
fn an_honest_server_is_understood() {
    let ack = || answer(option_reply::ACK, &[]);
    let flags = export_flag::HAS_FLAGS | export_flag::SEND_FLUSH | export_flag::SEND_FUA;
    let export = go(&[greeting(), export_answer(1 << 20, flags), ack()]).unwrap();
    assert_eq!((export.bytes, export.block_bytes, export.payload_bytes), (1 << 20, 512, 32 << 20));
    assert!(export.flushes() && export.forces() && !export.is_read_only() && !export.shares());
    let blocks = blocks_answer(4096, 1 << 20);
    let export = go(&[greeting(), blocks, export_answer(1 << 20, flags), ack()]).unwrap();
    assert_eq!((export.block_bytes, export.payload_bytes), (4096, 1 << 20));
}

#[test]
fn a_refusal_is_told_in_the_servers_words() {
    let refused = go(&[greeting(), answer(option_reply::ERR_UNKNOWN, b"no disk here")]);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("no such export") && error.contains("no disk here"), "{error}");
}

#[test]
fn a_hostile_server_is_an_error() {
    let flags = export_flag::HAS_FLAGS;
    let ack = || answer(option_reply::ACK, &[]);
    let oversized = answer(option_reply::INFO, &[])[..16].to_vec();
    let endless = vec![answer(option_reply::INFO, &[0, 9]); ANSWERS_MAX + 1].concat();
    let cases: Vec<Vec<Vec<u8>>> = vec![
        vec![],
        vec![vec![0; 18]],
        vec![greeting()],
        vec![greeting(), ack()],
        vec![greeting(), export_answer(1 << 20, 0), ack()],
        vec![greeting(), export_answer(u64::MAX, flags), ack()],
        vec![greeting(), export_answer(1 << 20, flags), blocks_answer(3000, 1 << 20), ack()],
        vec![greeting(), export_answer(1 << 20, flags), blocks_answer(4096, 0), ack()],
        vec![greeting(), answer(option_reply::INFO, &[0])],
        vec![greeting(), answer(77, &[])],
        vec![greeting(), oversized, u32::MAX.to_be_bytes().to_vec()],
        vec![greeting(), endless],
        vec![greeting(), vec![0x5a; 20]],
    ];
    for (number, case) in cases.iter().enumerate() {
        assert!(go(case).is_err(), "case {number}");
    }
}
