//! The other backend of mdspace: virtual disks, clock and faults under a seed.
#![forbid(unsafe_code)]

pub mod backend;
pub mod disk;
pub mod model;
pub mod oracle;
pub mod random;
pub mod stamp;
pub mod trace;
pub mod world;
