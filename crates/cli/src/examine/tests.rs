//! Our words against mdadm's: on members that the real kernel made (kept with mdadm's words as
//! text), and, where mdadm is installed, on members of every kind that we make ourselves.

mod against_mdadm;
mod kernel_made;
mod newer;

/// Begins a line that mdadm prints from August 2026 on: later than the one whose words were kept.
const RESYNC_LINE: &str = "  Resync Offset : ";

fn without_resync_line(words: &str) -> String {
    words.split_inclusive('\n').filter(|line| !line.starts_with(RESYNC_LINE)).collect()
}
