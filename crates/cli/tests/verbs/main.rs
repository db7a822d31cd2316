//! The verbs from outside: exit codes, what is written and what is not, and what is left running.
//! Needs no root, no network and no other program.

#[path = "../../../front/tests/common/blocking.rs"]
mod blocking;
mod client;
mod config;
mod life;
mod load;
mod members;
mod mirrors;
mod modelled;
mod multipath;
mod names;
mod network;
mod ownership;
mod rescue;
mod safety;
mod spares;
mod user;
