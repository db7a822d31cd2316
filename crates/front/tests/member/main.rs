//! Our NBD client as a member, against our NBD server: the backends' contract, arrays, and servers
//! that go, hang or lie.

mod array;
mod contract;
mod disk;
mod trouble;
