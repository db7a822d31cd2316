//! Makes a RAID6 of devices of this program's own type, and serves it over NBD until a line or the end of the input comes:
//!
//! ```text
//! cargo run --release -p mdspace --example serve_own_device -- nbd:unix:/tmp/array.sock FOLDER
//! nbdinfo 'nbd+unix:///?socket=/tmp/array.sock'
//! ```

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mdspace::{Array, Level, Member, OwnDevice};
use mdspace_front::Address;
use mdspace_front::listener::Listener;
use mdspace_front::nbd::{Export, Exports, Server, ServerLimits};

const MEMBERS: u8 = 5;
const MEMBER_BYTES: u64 = 256 << 20;

/// A file of which every byte is veiled. A cipher would go here; this one keeps no secret.
struct Veiled(File, u8);

impl OwnDevice for Veiled {
    fn size_bytes(&self) -> u64 {
        MEMBER_BYTES
    }

    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset_bytes)?;
        bytes.iter_mut().for_each(|byte| *byte ^= self.1);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        let veiled: Vec<u8> = bytes.iter().map(|byte| byte ^ self.1).collect();
        self.0.write_all_at(&veiled, offset_bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, folder] = &words[..] else {
        return Err("give ADDRESS FOLDER".into());
    };
    serve(address, Path::new(folder), || io::stdin().read_line(&mut String::new()).map(drop))
}

/// Serves a new array whose members are files in `folder`, until `until` comes back.
pub(crate) fn serve(
    address: &str,
    folder: &Path,
    until: impl FnOnce() -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let mut members = Vec::new();
    for number in 0..MEMBERS {
        let path = folder.join(format!("veiled-{number}"));
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(MEMBER_BYTES)?;
        let device = Arc::new(Veiled(file, 0x5a ^ number));
        members.push(Member::own(format!("veiled-{number}"), device));
    }
    // A hole in a veiled file is no zero: what lies there is overwritten, and resynced.
    let array = Array::create("veiled", Level::Raid6).members(members).overwrite_members(true);
    let array = array.lanes(2).start()?;
    let exports = Exports::new(vec![Export::of_array("veiled", &array.status()?)])?;
    let listener = Listener::bind(&Address::parse(address)?)?;
    let serve = |running: &_| Server::start(listener, exports, ServerLimits::default(), running);
    let server = array.with_running(serve).ok_or("the array has ended")?;
    until()?;
    server.close(Duration::from_secs(10))?;
    array.stop()?;
    Ok(())
}
