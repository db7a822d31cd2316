//! The format crate from outside: round trips, hostile bytes, the document, the real mdadm.

#[cfg(test)]
mod document;
#[cfg(test)]
mod fuzz_replay;
#[cfg(test)]
mod fuzzed;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod placement;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod seeded;
#[cfg(test)]
mod specimen;
