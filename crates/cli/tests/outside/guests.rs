//! Guests of a distribution's kernel under QEMU: virtual machines whose disk is an array, devices of the ublk driver, and
//! a host that boots again.
//!
//! `tools/fetch qemu-guest` and `tools/make-guest-disk` bring what they need.

mod reboot;
mod ublk;
mod virtual_machine;
