//! `cargo bench -p mdspace-parity [-- OPERATION]`: input consumed, in GB/s of one core.
//!
//! Contenders take turns within each repetition, so a busy machine slows all alike. With Debian's
//! ISA-L (`MDSPACE_ISAL=path`, or libisal.so.2 anywhere below target/tools) its `pq_gen` and
//! `xor_gen` run on the same buffers, must give the same bytes, and stand in the same table.

mod isal;
mod row;

use std::{hint::black_box, time::Instant};

use isal::Isal;
use mdspace_parity::{Change, Kernels, kernels};
use row::{Blocks, MEMBERS, Row};

/// Bytes of a block: in L1, in L2, in memory.
const SIZES: [(&str, usize); 3] = [("6x4K", 4 << 10), ("6x64K", 64 << 10), ("6x16M", 16 << 20)];
/// Input bytes of one timing: about 0.1 ms in cache.
const TIMING_BYTES: usize = 8 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    // `cargo bench` says --bench; anyone else only learns that it works.
    let repetitions = if arguments.iter().any(|argument| argument == "--bench") { 31 } else { 1 };
    let isal = Isal::find();

    println!("GB/s of input, best / median of {repetitions}; chosen here: {}", kernels().isa());
    for operation in OPERATIONS.iter().filter(|o| wanted.is_none_or(|name| name == o.name)) {
        Table::measure(operation, isal.as_ref(), repetitions).print(operation.name);
    }
}

/// What is timed.
struct Operation {
    name: &'static str,
    /// Blocks that one call takes as input.
    inputs: usize,
    ours: fn(&Kernels, Blocks<'_>),
    theirs: Option<fn(&Isal, Blocks<'_>)>,
}

const OPERATIONS: [Operation; 8] = [
    Operation {
        name: "pq",
        inputs: MEMBERS,
        ours: |kernels, row| kernels.pq(&row.data, row.p, row.q),
        theirs: Some(Isal::pq),
    },
    Operation {
        name: "pq_streaming",
        inputs: MEMBERS,
        ours: |kernels, row| kernels.pq_streaming(&row.data, row.p, row.q),
        theirs: Some(Isal::pq),
    },
    Operation {
        name: "xor",
        inputs: MEMBERS,
        ours: |kernels, row| kernels.xor(&row.data, row.p),
        theirs: Some(Isal::xor),
    },
    Operation {
        name: "xor_streaming",
        inputs: MEMBERS,
        ours: |kernels, row| kernels.xor_streaming(&row.data, row.p),
        theirs: Some(Isal::xor),
    },
    Operation {
        name: "q",
        inputs: MEMBERS,
        ours: |kernels, row| kernels.q(&row.data, row.q),
        theirs: None,
    },
    Operation {
        name: "update",
        inputs: 4, // old, new, P, Q
        ours: |kernels, row| {
            let change = Change { exponent: 3, old: row.data[0], new: row.data[1] };
            kernels.update(&[change], Some(row.p), Some(row.q));
        },
        theirs: None,
    },
    Operation {
        name: "recover_from_q",
        inputs: MEMBERS,
        ours: |kernels, row| {
            let [_, a, b, c, d, e] = row.data;
            kernels.recover_from_q(&[a, b, &[], c, d, e], 2, row.q, row.p);
        },
        theirs: None,
    },
    Operation {
        name: "recover_two",
        inputs: MEMBERS,
        ours: |kernels, row| {
            let [.., a, b, c, d] = row.data;
            let data = [a, &[], b, c, &[], d];
            kernels.recover_two(&data, [1, 4], row.p, row.q, row.recovered);
        },
        theirs: None,
    },
];

/// GB/s by contender, then by size.
struct Table {
    rows: Vec<(String, Vec<Speed>)>,
}

#[derive(Clone, Copy)]
struct Speed {
    best: f64,
    median: f64,
}

impl Table {
    fn measure(operation: &Operation, isal: Option<&Isal>, repetitions: usize) -> Self {
        let contenders = contenders(operation, isal);
        let mut rows: Vec<_> =
            contenders.iter().map(|contender| (contender.name.clone(), Vec::new())).collect();
        for (_, len) in SIZES {
            let mut row = Row::random(len);
            if let Some((theirs, isal)) = operation.theirs.zip(isal) {
                assert_same_result(operation, |row| theirs(isal, row), &mut row);
            }
            let speeds = race(&contenders, &mut row, operation.inputs * len, repetitions);
            for ((_, cells), speed) in rows.iter_mut().zip(speeds) {
                cells.push(speed);
            }
        }
        Self { rows }
    }

    fn print(&self, name: &str) {
        print!("\n{name:16}");
        SIZES.iter().for_each(|(size, _)| print!("{size:>16}"));
        println!();
        for (contender, cells) in &self.rows {
            print!("  {contender:14}");
            cells.iter().for_each(|speed| print!("{:>8.1} /{:6.1}", speed.best, speed.median));
            println!();
        }
        let row = |wanted: &str| self.rows.iter().find(|(name, _)| name == wanted);
        if let (Some((_, ours)), Some((_, theirs))) = (row(kernels().isa().name()), row("isa-l")) {
            print!("  {:14}", format!("{} : isa-l", kernels().isa()));
            let pairs = ours.iter().zip(theirs);
            pairs
                .for_each(|(a, b)| print!("{:>8.2} /{:6.2}", a.best / b.best, a.median / b.median));
            println!();
        }
    }
}

struct Contender<'a> {
    name: String,
    call: Box<dyn Fn(Blocks<'_>) + 'a>,
}

fn contenders<'a>(operation: &'a Operation, isal: Option<&'a Isal>) -> Vec<Contender<'a>> {
    let ours = Kernels::available().map(|kernels| Contender {
        name: kernels.isa().to_string(),
        call: Box::new(|row| (operation.ours)(kernels, row)),
    });
    let theirs = operation.theirs.zip(isal).map(|(theirs, isal)| Contender {
        name: "isa-l".to_owned(),
        call: Box::new(move |row| theirs(isal, row)),
    });
    ours.chain(theirs).collect()
}

/// The speed of each contender, all taking turns.
fn race(
    contenders: &[Contender<'_>],
    row: &mut Row,
    bytes: usize,
    repetitions: usize,
) -> Vec<Speed> {
    let calls = TIMING_BYTES.div_ceil(bytes);
    let mut seconds = vec![Vec::with_capacity(repetitions); contenders.len()];
    for _ in 0..repetitions {
        for (contender, seconds) in contenders.iter().zip(&mut seconds) {
            (contender.call)(row.blocks());
            let start = Instant::now();
            for _ in 0..calls {
                (contender.call)(black_box(row.blocks()));
            }
            seconds.push(start.elapsed().as_secs_f64() / calls as f64);
        }
    }
    let speed = |mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        let gigabytes = bytes as f64 / 1e9;
        Speed { best: gigabytes / seconds[0], median: gigabytes / seconds[seconds.len() / 2] }
    };
    seconds.into_iter().map(speed).collect()
}

/// ISA-L is an oracle that shares no line with us.
fn assert_same_result(operation: &Operation, theirs: impl Fn(Blocks<'_>), row: &mut Row) {
    let Blocks { p, q, .. } = row.blocks();
    p.fill(0);
    q.fill(0);
    theirs(row.blocks());
    let Blocks { p, q, .. } = row.blocks();
    let expected = (p.to_vec(), q.to_vec());
    p.fill(1);
    (operation.ours)(kernels(), row.blocks());
    let Blocks { p, q, .. } = row.blocks();
    assert!(*p == *expected.0 && *q == *expected.1, "ISA-L computes other bytes");
}
