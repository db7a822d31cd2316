//! The other backend of mdspace: virtual disks, clock and faults under a seed.
