#![no_main]

#[path = "../../crates/format/tests/format/fuzzed.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzed::bad_blocks(input));
