//! How often each front copies what is read from a healthy array, on every level. Lanes count the bytes wherever the
//! engine or a front copies them in memory.
//!
//! To that comes the kernel's copy, once for each byte: into a socket, or to the program that reads a file. A virtual
//! machine's memory is shared, and needs none.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use mdspace_format::Level;
use mdspace_front::PartialWrites;
use mdspace_front::fuse::{FuseServer, Mount, Session};
use mdspace_front::vhost_user::client::{Ask, FrontEnd, Guest};

use crate::array::ServedArray;
use crate::client::BlockingClient;
use crate::memory::PATIENCE;
use crate::vhost_user::Served;

const LEVELS: [(Level, u16); 7] = [
    (Level::Linear, 2),
    (Level::Raid0, 2),
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 3),
    (Level::Raid6, 4),
    (Level::Raid10, 4),
];
const BLOCK: usize = 4096;
const BLOCKS: usize = 256;
const BYTES: u64 = (BLOCKS * BLOCK) as u64;

/// Bytes that lanes copy meanwhile, by the byte that is read.
fn copies(array: &ServedArray, read: impl FnOnce()) -> f64 {
    let before = array.copied_bytes();
    read();
    (array.copied_bytes() - before) as f64 / BYTES as f64
}

fn pattern() -> Vec<u8> {
    (0..BYTES as usize).map(|at| (at * 29 % 253) as u8).collect()
}

#[test]
fn nbd_copies_nothing_that_is_read() {
    let written = pattern();
    for (level, members) in LEVELS {
        let mut served = ServedArray::of(level, members);
        let path = served.serve("a.sock", "");
        let mut client = BlockingClient::new(&path, true);
        let copied = copies(&served, || client.write(0, &written));
        assert!(copied > 0.0, "{level:?}: what is written in pieces is counted");
        let copied = copies(&served, || {
            for block in 0..BLOCKS {
                let read = client.read((block * BLOCK) as u64, BLOCK as u64);
                assert!(read == written[block * BLOCK..][..BLOCK]);
            }
        });
        assert_eq!(copied, 0.0, "{level:?}");
        drop(client);
        served.end();
    }
}

/// Through io_uring each byte is copied once: into the memory that the kernel knows.
#[test]
fn a_mounted_file_copies_nothing_that_is_read_without_io_uring() {
    if File::options().read(true).write(true).open("/dev/fuse").is_err()
        || !rustix::process::geteuid().is_root()
    {
        return println!("SKIPPED: this needs root and /dev/fuse");
    }
    let written = pattern();
    for (level, members) in LEVELS {
        let served = ServedArray::of(level, members);
        let folder = served.folder.path().join("mount");
        fs::create_dir(&folder).expect("a folder");
        let mount = Mount::new(&folder).expect("mounted");
        let session = Session::new(served.exports(), 0, 0).without_ring();
        let server = FuseServer::start(mount, session, PartialWrites::default(), &served.array);
        let server = server.expect("served");
        let file = File::options().read(true).write(true).open(server.path()).expect("it opens");
        file.write_all_at(&written, 0).expect("written");
        let copied = copies(&served, || {
            let mut read = vec![0; BLOCK];
            for block in 0..BLOCKS {
                file.read_exact_at(&mut read, (block * BLOCK) as u64).expect("read");
                assert!(read == written[block * BLOCK..][..BLOCK]);
            }
        });
        assert_eq!(copied, 0.0, "{level:?}");
        drop(file);
        server.close(PATIENCE).expect("closed");
        served.end();
    }
}

#[test]
fn a_virtual_machine_s_disk_copies_once_what_is_read() {
    let written = pattern();
    for (level, members) in LEVELS {
        let served = Served::on(ServedArray::of(level, members));
        let guest = Guest::new(1).expect("a guest");
        let mut front = FrontEnd::start(&served.path, guest).expect("it is served");
        let mut done = |ask: Ask<'_>| {
            front.guest().ask(0, 0, ask);
            front.guest().kick(0);
            assert_eq!(front.guest().wait(0, PATIENCE), Some((0, 0)));
            front.guest().data(0, 0, BLOCK)
        };
        let sector = |block: usize| (block * BLOCK / 512) as u64;
        for (block, bytes) in written.chunks(BLOCK).enumerate() {
            done(Ask::Write(sector(block), bytes));
        }
        let copied = copies(&served.array, || {
            for block in 0..BLOCKS {
                let read = done(Ask::Read(sector(block), BLOCK));
                assert!(read == written[block * BLOCK..][..BLOCK]);
            }
        });
        assert_eq!(copied, 1.0, "{level:?}");
        drop(front);
        served.end();
    }
}
