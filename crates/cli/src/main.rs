//! The `mdspace` command.

fn main() {}
