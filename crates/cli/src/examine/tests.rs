//! Our words against mdadm's: on members that the real kernel made (kept with mdadm's words as
//! text), and, where mdadm is installed, on members of every kind that we make ourselves.

mod against_mdadm;
mod kernel_made;
