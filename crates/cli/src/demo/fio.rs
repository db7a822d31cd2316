//! fio's part of the demo: random I/O over NBD that reads back what it wrote.

use serde_json::Value;

use super::stage::{Running, Stage};
use super::{FIO_OFFSET_MIB, FIO_SIZE_MIB};
use crate::failure::Failure;

/// What a busy array does, before anything fails.
pub(super) struct Speeds {
    pub(super) random_write_iops: u64,
    pub(super) random_read_iops: u64,
}

/// Measures random writes, then random reads, two seconds each.
pub(super) fn speeds(stage: &Stage) -> Result<Speeds, Failure> {
    Ok(Speeds {
        random_write_iops: measure(stage, "randwrite", "write")?,
        random_read_iops: measure(stage, "randread", "read")?,
    })
}

fn measure(stage: &Stage, rw: &str, side: &str) -> Result<u64, Failure> {
    let mut words = job(stage, rw);
    words.extend(
        ["--name=speed", "--time_based", "--runtime=2", "--output-format=json"].map(str::to_owned),
    );
    let said = stage.run_quietly("fio", &words)?;
    // Warnings may stand before the object.
    let json = said.find('{').map_or("", |start| &said[start..]);
    let parsed: Value = serde_json::from_str(json).unwrap_or_default();
    let iops = parsed["jobs"][0][side]["iops"].as_f64().ok_or_else(|| {
        Failure::new("cannot read what fio measured", said, "is it fio 3.x with the nbd engine?")
    })?;
    Ok(iops as u64)
}

/// Writes the whole second half once, slowly enough to last over a rebuild, and verifies it.
pub(super) fn verified_load(stage: &Stage) -> Result<Running<'_>, Failure> {
    let mut words = job(stage, "randwrite");
    words.extend(
        ["--name=verified", "--verify=crc32c", "--do_verify=1", "--rate_iops=8000"]
            .map(str::to_owned),
    );
    stage.start("fio", &words)
}

/// Reads the second half again and verifies it; writes nothing.
pub(super) fn verify(stage: &Stage) -> Result<(), Failure> {
    let mut words = job(stage, "randwrite");
    words.extend(["--name=verified", "--verify=crc32c", "--verify_only"].map(str::to_owned));
    stage.run_quietly("fio", &words).map(drop)
}

fn job(stage: &Stage, rw: &str) -> Vec<String> {
    vec![
        "--ioengine=nbd".into(),
        // One process: nothing of it is left when it is killed.
        "--thread".into(),
        format!("--uri={}", stage.uri()),
        format!("--rw={rw}"),
        "--bs=4k".into(),
        "--iodepth=32".into(),
        format!("--offset={FIO_OFFSET_MIB}M"),
        format!("--size={FIO_SIZE_MIB}M"),
    ]
}
