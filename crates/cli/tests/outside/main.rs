//! The project's outside: everything that only the whole command, the real kernel and real clients
//! can show. `make test` runs each module as a group of its own; `cargo test` alone leaves this
//! program out, since most of it needs the programs that `tools/fetch` unpacks.

#[path = "../../../front/tests/common/certificates.rs"]
#[expect(dead_code, reason = "other tests revoke some")]
mod certificates;
mod clients;
mod docs;
mod durability;
mod guests;
mod harness;
mod install;
mod instructions;
mod interop;
mod kernel;
mod kills;
mod matrix;
mod members;
mod mounts;
mod package;
mod paths;
mod systemd;
mod tree;
