//! Instructions that a request costs, counted by callgrind: times differ from machine to machine and
//! from hour to hour, these hardly do. docs/performance.md has the counts, and how to repeat them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::harness::{Tools, project};

/// How far a count may lie from what the document says.
const TOLERANCE: f64 = 0.03;

/// A row of the document's table, and the load that it stands for.
struct Operation {
    name: &'static str,
    device: &'static str,
    words: &'static str,
    /// Requests of the shorter run, and of the longer one.
    requests: [u64; 2],
}

const OPERATIONS: [Operation; 5] = [
    Operation {
        name: "4 KiB random read",
        device: ARRAY,
        words: "--rw=randread --bs=4k --iodepth=32",
        requests: [2_000, 32_000],
    },
    Operation {
        name: "4 KiB random write",
        device: ARRAY,
        words: "--rw=randwrite --bs=4k --iodepth=32",
        requests: [1_000, 6_000],
    },
    Operation {
        name: "4 KiB random write, degraded",
        device: ARRAY,
        words: "--fail=1 --rw=randwrite --bs=4k --iodepth=32",
        requests: [1_000, 6_000],
    },
    Operation {
        name: "full row of 4 x 64 KiB",
        device: ARRAY,
        words: "--rw=write --bs=256k --iodepth=1",
        requests: [20, 120],
    },
    Operation {
        name: "4 KiB random read over 2 paths",
        device: "--multipath=service-time --paths=2 --member=ram:16M",
        words: "--rw=randread --bs=4k --iodepth=32",
        requests: [2_000, 32_000],
    },
];

/// The array of most operations: healthy, in memory, on one lane.
const ARRAY: &str = "--level=6 --raid-devices=6 --chunk=64K --member=ram:16M";

#[test]
fn a_request_costs_the_instructions_that_the_document_tells() {
    let Some(counter) = Counter::find() else { return };
    let documented =
        documented(&fs::read_to_string(project().join("docs/performance.md")).unwrap());
    let found = counter.instructions_of_all();
    let mut wrong = Vec::new();
    for (operation, found) in OPERATIONS.iter().zip(found) {
        let told = documented.iter().find(|(name, _)| name == operation.name);
        let told = told.unwrap_or_else(|| panic!("no row '{}' in the document", operation.name)).1;
        println!("{}: {found:.0} instructions, told {told:.0}", operation.name);
        if !is_near(found, told) {
            wrong.push(format!(
                "{}: {found:.0} instructions, the document says {told:.0}",
                operation.name
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nif that is meant, say so in docs/performance.md",
        wrong.join("\n")
    );
}

#[test]
fn a_count_beyond_the_tolerance_is_noticed_and_a_row_is_read() {
    assert!(is_near(1029.0, 1000.0) && is_near(971.0, 1000.0));
    assert!(!is_near(1031.0, 1000.0) && !is_near(969.0, 1000.0));
    let text =
        "| operation | instructions |\n|---|---|\n| 4 KiB random read | 1 234 |\n| x | y |\n";
    assert_eq!(documented(text), [("4 KiB random read".to_owned(), 1234.0)]);
}

fn is_near(found: f64, told: f64) -> bool {
    (found / told - 1.0).abs() <= TOLERANCE
}

/// Rows of two cells whose second is a number, with spaces between its thousands.
fn documented(text: &str) -> Vec<(String, f64)> {
    let rows = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        Some((name.to_owned(), number.replace(' ', "").parse().ok()?))
    });
    rows.collect()
}

/// mdspace as users run it, under valgrind.
struct Counter {
    mdspace: PathBuf,
}

impl Counter {
    /// None, said on the way, where nothing can be counted.
    fn find() -> Option<Self> {
        let mut folders = Tools::find().path().split(':');
        if !folders.any(|folder| Path::new(folder).join("valgrind").exists()) {
            println!("SKIPPED: no valgrind to count instructions with; run tools/fetch");
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        let counts = std::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let counts = false;
        if !counts {
            println!("SKIPPED: the counts are those of AVX2, which this CPU lacks");
            return None;
        }
        Some(Self { mdspace: optimised() })
    }

    /// Those of each operation, counted side by side: what runs beside a program changes no count.
    fn instructions_of_all(&self) -> Vec<f64> {
        thread::scope(|scope| {
            let count = |operation| scope.spawn(move || self.instructions(operation));
            let under_way: Vec<_> = OPERATIONS.iter().map(count).collect();
            under_way.into_iter().map(|thread| thread.join().expect("it is counted")).collect()
        })
    }

    /// Instructions of one request: what the longer run costs more, of all threads.
    fn instructions(&self, operation: &Operation) -> f64 {
        let [few, many] = operation.requests;
        let [less, more] = operation.requests.map(|requests| self.run(operation, requests));
        (more - less) / (many - few) as f64
    }

    fn run(&self, operation: &Operation, requests: u64) -> f64 {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let counts = folder.path().join("counts");
        let output = Tools::find()
            .command("valgrind")
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", counts.display()))
            .arg(&self.mdspace)
            .args(["bench", "run", &format!("--number-ios={requests}")])
            .args(operation.device.split(' ').chain(operation.words.split(' ')))
            .env("MDSPACE_SIMD", "avx2")
            .env("MDSPACE_IO", "preadv")
            .output()
            .expect("valgrind runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(" requests, 0 errors"), "{said}{errors}");
        let text = fs::read_to_string(&counts).expect("callgrind writes its counts");
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        totals.and_then(|number| number.trim().parse().ok()).expect("a line of totals")
    }
}

/// The optimised program: nobody runs the one that tests are built with.
fn optimised() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "-p",
            "mdspace-cli",
            "--bin",
            "mdspace",
            "--message-format=json",
        ])
        .current_dir(project())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let executable = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    executable.expect("cargo names what it built")
}
