//! 2020: dbench, ten clients of a file system on the array. The array is served as any user's: by a process of its own, as
//! a block device of this host.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tempfile::TempDir;

use crate::bench::figures::Ratio;
use crate::failure::Failure;
use crate::programs;

/// Each size is measured so often, in turns.
const REPETITIONS: usize = 3;
/// dbench counts whole seconds, and a fifth of them does not count.
const LEAST_S: u64 = 5;
const CLIENTS: &str = "10";
const MEMBERS: usize = 4;
/// What the clients' files take, several times over.
const MEMBER: &str = "ram:512M";

/// The baseline and the treatment: `--stripe-size`, and what was published of it.
const SIZES: [(&str, &str); 2] = [("64K", "308 MB/s, 530 ms"), ("4K", "377 MB/s, 459 ms")];

#[derive(Debug, Serialize)]
pub(super) struct Dbench {
    sizes: Vec<Size>,
    /// Treatment over baseline, in throughput; none where nothing was measured.
    change: Option<Ratio>,
    /// Why nothing was.
    absent: Option<String>,
}

#[derive(Debug, Serialize)]
struct Size {
    stripe_size: &'static str,
    published: &'static str,
    command: String,
    runs: Vec<Run>,
}

/// What dbench says at its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Run {
    mb_s: f64,
    /// The longest that any client waited for one call.
    max_latency_ms: f64,
}

/// Measures both sizes; `span` is one repetition.
pub(super) fn measure(span: Duration) -> Result<Dbench, Failure> {
    let size = |(stripe_size, published)| Size {
        stripe_size,
        published,
        command: create_words(stripe_size).join(" "),
        runs: Vec::new(),
    };
    let mut sizes: Vec<Size> = SIZES.into_iter().map(size).collect();
    let host = match Host::find() {
        Ok(host) => host,
        Err(why) => return Ok(Dbench { sizes, change: None, absent: Some(why) }),
    };
    let seconds = span.as_secs().max(LEAST_S);
    for _ in 0..REPETITIONS {
        for size in &mut sizes {
            let run = host.run(size.stripe_size, seconds).map_err(|why| {
                let what = format!("cannot measure dbench with --stripe-size={}", size.stripe_size);
                Failure::new(what, why, "see `mdspace doctor`; the other tables are `--table=YEAR`")
            })?;
            size.runs.push(run);
        }
    }
    let [baseline, treatment] = &sizes[..] else { unreachable!("there are two") };
    let change =
        Ratio::of_pairs(&treatment.runs, &baseline.runs, |one, other| one.mb_s / other.mb_s);
    Ok(Dbench { change: Some(change), sizes, absent: None })
}

/// The array, in the words of `mdspace`.
fn create_words(stripe_size: &str) -> Vec<String> {
    let mut words = vec!["create".to_owned(), name(), "--level=5".into()];
    words.push(format!("--raid-devices={MEMBERS}"));
    words.push(format!("--stripe-size={stripe_size}"));
    words.extend(["--assume-clean", "--serve=block", "--run"].map(str::to_owned));
    words.extend(std::iter::repeat_n(MEMBER.to_owned(), MEMBERS));
    words
}

/// Names of block devices are the whole host's.
fn name() -> String {
    format!("dbench-{}", std::process::id())
}

/// What dbench needs, and where it works.
struct Host {
    folder: TempDir,
    path: String,
    /// What the clients do, where dbench does not find its own file.
    load: Option<PathBuf>,
}

impl Host {
    /// An error says what this host lacks.
    fn find() -> Result<Self, String> {
        let path = programs::path();
        for (program, cure) in [
            ("dbench", "`apt install dbench`, or tools/fetch in the source tree"),
            ("mkfs.ext4", "`apt install e2fsprogs`, or tools/fetch in the source tree"),
            ("mount", "`apt install mount`"),
        ] {
            if !programs::is_on(&path, program) {
                return Err(format!("there is no {program} here: {cure}"));
            }
        }
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a file system needs root".to_owned());
        }
        let folder = TempDir::with_prefix("mdspace-dbench-").map_err(|error| error.to_string())?;
        let unpacked =
            programs::unpacked().map(|tools| tools.join("root/usr/share/dbench/client.txt"));
        let load = unpacked.filter(|file| file.is_file());
        Ok(Self { folder, path, load })
    }

    /// Makes the array and a file system, has the clients work on it, and takes all away again.
    fn run(&self, stripe_size: &str, seconds: u64) -> Result<Run, String> {
        let mounted = Mounted::new(self, stripe_size)?;
        let (seconds, place) = (seconds.to_string(), self.place());
        let mut words = vec!["-t", &*seconds, "-D", &*place];
        let load = self.load.as_ref().map(|file| file.display().to_string());
        words.extend(load.iter().flat_map(|file| ["-c", file]));
        words.push(CLIENTS);
        let said = self.succeed("dbench", &words)?;
        let run =
            Run::read(&said).ok_or_else(|| format!("dbench ended without a result:\n{said}"))?;
        mounted.finish()?;
        Ok(run)
    }

    fn place(&self) -> String {
        self.folder.path().join("place").display().to_string()
    }

    fn succeed(&self, program: &str, words: &[impl AsRef<OsStr>]) -> Result<String, String> {
        let mut command = programs::command(program, &self.path, self.folder.path());
        let output = command.args(words).output().map_err(|error| format!("{program}: {error}"))?;
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(said.into_owned()),
            false => Err(format!("{program}: {}\n{said}", output.status)),
        }
    }
}

/// A file system on an array; both go with it.
struct Mounted<'a> {
    host: &'a Host,
    is_over: bool,
}

impl<'a> Mounted<'a> {
    fn new(host: &'a Host, stripe_size: &str) -> Result<Self, String> {
        host.succeed("mdspace", &create_words(stripe_size))?;
        let mounted = Self { host, is_over: false };
        let device = format!("/dev/mdspace/{}", name());
        host.succeed("mkfs.ext4", &["-q", &device])?;
        fs::create_dir_all(host.place()).map_err(|error| error.to_string())?;
        host.succeed("mount", &[device, host.place()])?;
        Ok(mounted)
    }

    /// Unmounts, and wants the parity right.
    fn finish(mut self) -> Result<(), String> {
        let (host, name) = (self.host, name());
        host.succeed("umount", &[host.place()])?;
        host.succeed("mdspace", &["action", &*name, "check", "--wait"])?;
        let differ = host.succeed("mdspace", &["get", &*name, "mismatch_cnt"])?;
        if differ.trim() != "0" {
            return Err(format!("a check counts {} sectors afterwards", differ.trim()));
        }
        host.succeed("mdspace", &["stop", &*name])?;
        self.is_over = true;
        Ok(())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // What failed is told already.
        let _ = self.host.succeed("umount", &[self.host.place()]);
        let _ = self.host.succeed("mdspace", &["stop", &*name(), "--force"]);
    }
}

impl Run {
    /// Of `Throughput 377.307 MB/sec  10 clients  10 procs  max_latency=459.123 ms`.
    fn read(said: &str) -> Option<Self> {
        let line = said.lines().find_map(|line| line.strip_prefix("Throughput "))?;
        let (mb_s, rest) = line.split_once(" MB/sec")?;
        let (_, latency) = rest.split_once("max_latency=")?;
        let max_latency_ms = latency.split_whitespace().next()?.parse().ok()?;
        Some(Self { mb_s: mb_s.trim().parse().ok()?, max_latency_ms })
    }
}

impl Dbench {
    pub(super) fn text(&self) -> String {
        let mut text = "dbench, 10 clients, ext4 on --serve=block, members in RAM\n".to_owned();
        if let Some(why) = &self.absent {
            let _ = writeln!(text, "not measured: {why}");
            return text;
        }
        for Size { stripe_size, published, runs, .. } in &self.sizes {
            let [mb_s, latency_ms] = [|run: &Run| run.mb_s, |run: &Run| run.max_latency_ms]
                .map(|of| middle(runs.iter().map(of).collect()));
            let name = format!("stripe_size {stripe_size}");
            let _ = writeln!(
                text,
                "{name:38} {published:>24} {mb_s:>9.0} MB/s, {latency_ms:.0} ms at most"
            );
        }
        if let Some(Ratio { median, spread: [least, most] }) = self.change {
            let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
            let (median, least, most) = (percent(median), percent(least), percent(most));
            let _ = writeln!(
                text,
                "{:38} {:>24} {median} ({least} to {most})",
                "4K over 64K", "+22.4 %"
            );
        }
        text
    }
}

/// The one in the middle.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests;
