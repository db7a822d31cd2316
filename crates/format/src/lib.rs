//! md's on-disk formats: bytes to types and back.
#![forbid(unsafe_code)]
