//! The programs in `examples/`, as they stand there.

use std::fs;
use std::rc::Rc;
use std::time::Duration;

use mdspace::{Array, Level};
use mdspace_engine::backend::{IoOp, MemberIo, Patience, ReadInto, WriteFrom};
use mdspace_engine::memory::Buffer;
use mdspace_io::{LanesConfig, LocalLane, OpenMode};

use crate::bed::{create, files, pattern};

#[path = "../../examples/copy_out.rs"]
#[allow(dead_code, reason = "its main takes words of the command line")]
mod copy_out;
#[path = "../../examples/serve_own_device.rs"]
#[allow(dead_code, reason = "its main takes words of the command line")]
mod serve_own_device;

#[test]
fn an_array_is_copied_out_of_the_members_that_are_left_and_they_stay_as_they_are() {
    let files = files(3);
    let array = create(Level::Raid5, &files);
    let bytes = pattern(1, 6 << 20);
    array.write_at(&bytes, 1 << 20).unwrap();
    array.stop().unwrap();
    fs::remove_file(&files.paths[1]).unwrap();
    let before: Vec<_> = [0, 2].map(|file: usize| fs::read(&files.paths[file]).unwrap()).into();
    let image = files.folder.path().join("image");
    let len = copy_out::copy_out(&image, &files.paths).unwrap();
    let copied = fs::read(&image).unwrap();
    assert_eq!((copied.len() as u64, len), (array.size_bytes(), array.size_bytes()));
    assert!(copied[1 << 20..7 << 20] == bytes);
    assert!(copied[..1 << 20].iter().chain(&copied[7 << 20..]).all(|byte| *byte == 0));
    let after: Vec<_> = [0, 2].map(|file: usize| fs::read(&files.paths[file]).unwrap()).into();
    assert!(before == after);
    Array::assemble(&files.paths).allow_degraded(true).start().unwrap().stop().unwrap();
}

#[test]
fn an_array_of_own_devices_is_served_over_nbd() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let client = || {
        let config = LanesConfig::default();
        let lane = LocalLane::new(&config).unwrap();
        let name = format!("nbd+unix:///veiled?socket={}", socket.display());
        let (member, info) = config.members.open(&name, OpenMode::RUN).unwrap();
        // Three members' worth of data.
        assert!(info.sectors * 512 > 700 << 20, "{} sectors", info.sectors);
        let theirs: Rc<_> = lane.lane().clone();
        let read = lane.block_on(async move {
            let patience = Patience::of(Duration::from_secs(60));
            let mut buffer = Buffer::zeroed(65536);
            buffer.copy_from_slice(&pattern(5, 65536));
            let from = WriteFrom::Buffer(buffer, 0..65536);
            let op = IoOp::Write { sector: 2048, from, fua: true };
            theirs.io(MemberIo { member, op, patience }).await.result.unwrap();
            let into = ReadInto::Buffer(Buffer::zeroed(65536), 0..65536);
            let op = IoOp::Read { sector: 2048, into };
            theirs.io(MemberIo { member, op, patience }).await.buffer.unwrap().to_vec()
        });
        assert!(read == pattern(5, 65536));
        config.members.close(member);
        Ok(())
    };
    let address = format!("nbd:unix:{}", socket.display());
    serve_own_device::serve(&address, folder.path(), client).unwrap();
}

/// It is run there, as a doc test.
#[test]
fn the_example_of_the_readme_stands_on_the_front_page() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let readme = fs::read_to_string(format!("{root}README.md")).unwrap();
    let front_page = include_str!("../../src/lib.rs");
    let example = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let lines: Vec<&str> = example.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 4, "{lines:?}");
    for line in lines {
        assert!(front_page.contains(&format!("//! {line}\n")), "{line}");
    }
}
