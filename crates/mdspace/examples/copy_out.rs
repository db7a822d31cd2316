//! Assembles an array from its members without writing to them, and copies it to a file:
//!
//! ```text
//! cargo run --release -p mdspace --example copy_out -- IMAGE MEMBER...
//! ```

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mdspace::Array;

const PIECE_BYTES: u64 = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let Some((image, members)) = words.split_first() else {
        return Err("give the file to write, and the members".into());
    };
    println!("{} bytes are copied", copy_out(image, members)?);
    Ok(())
}

/// Gives the number of bytes.
pub(crate) fn copy_out(image: &Path, members: &[PathBuf]) -> Result<u64, Box<dyn Error>> {
    // As many members as the level needs are enough.
    let array = Array::assemble(members).read_only(true).allow_degraded(true).start()?;
    for left_out in array.left_out() {
        eprintln!("{} is left out: it {}", left_out.member, left_out.reason);
    }
    let image = File::create_new(image)?;
    image.set_len(array.size_bytes())?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    for offset in (0..array.size_bytes()).step_by(piece.len()) {
        let len = PIECE_BYTES.min(array.size_bytes() - offset) as usize;
        array.read_at(&mut piece[..len], offset)?;
        // What is zero stays a hole.
        if piece[..len].iter().any(|byte| *byte != 0) {
            image.write_all_at(&piece[..len], offset)?;
        }
    }
    image.sync_all()?;
    array.stop()?;
    Ok(array.size_bytes())
}
