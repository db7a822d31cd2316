//! The other backend of mdspace: virtual disks, clock and faults under a seed.
#![forbid(unsafe_code)]

pub mod backend;
pub mod disk;
pub mod exhaustive;
pub mod lent;
pub mod model;
pub mod oracle;
pub mod process;
pub mod random;
pub mod regression;
pub mod settings;
pub mod shrink;
pub mod simulation;
pub mod stamp;
pub mod trace;
pub mod trial;
pub mod workload;
pub mod world;
