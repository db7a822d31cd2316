//! A leg that mdspace takes, on the host.

use super::plan::{End, Leg, Step};
use super::{History, Role};
use crate::harness::{Mdspace, Nbd, Request, SECTOR, path_text};

/// Bytes of one read when the whole array is read.
const READ_BYTES: u64 = 1 << 20;

/// Takes the leg. Gives what the array held at its start.
pub(super) fn run(history: &History, leg: &Leg) -> Vec<u8> {
    let (mdspace, name) = (Mdspace::new(), name(history));
    let options: Vec<&str> = history.shape.options.split(' ').collect();
    let fixed = ["--size=4M", "--data-offset=1M", "--bitmap=internal", "--bitmap-chunk=64"];
    let mut nbd = match leg.creates {
        true => start(history, &mdspace, &[&["create"], &options[..], &fixed].concat()),
        false => start(history, &mdspace, &["assemble"]),
    };
    let read = read_all(&mut nbd);
    let image = |number: usize| path_text(&history.images[number]);
    let last_flush = leg.steps.iter().rposition(|step| matches!(step, Step::Flush));
    for (number, step) in leg.steps.iter().enumerate() {
        // What comes behind the last flush before a kill is under way when that comes.
        let under_way = leg.end == End::Kill && last_flush.is_some_and(|last| number > last);
        match step {
            Step::Write(write) => {
                let (offset, bytes) = (write.first * SECTOR as u64, history.bytes(write));
                match under_way {
                    true => drop(nbd.submit(&Request::Write(offset, bytes)).expect("it lives")),
                    false => nbd.write(offset, &bytes),
                }
            }
            Step::Flush => nbd.flush(),
            Step::Slow => {
                mdspace.succeed(&["set", &name, "sync_speed_min=100"]);
                mdspace.succeed(&["set", &name, "sync_speed_max=100"]);
            }
            Step::Settle { .. } => {
                mdspace.succeed(&["set", &name, "sync_speed_max=2000000"]);
                mdspace.settle(&name);
            }
            Step::Check => assert_eq!(mdspace.check(&name), 0, "{name} has mismatches"),
            Step::Fail(member) => {
                mdspace.succeed(&["fail", &name, image(*member)]);
                mdspace.succeed(&["remove", &name, image(*member)]);
            }
            Step::Return(member) => {
                mdspace.succeed(&["add", &name, image(*member), "--run"]);
            }
            Step::Replace { old, new } => {
                mdspace.succeed(&["replace", &name, image(*old), "--with", image(*new)]);
            }
            // The other side may have finished that, and knows no such member any more.
            Step::Remove(member) => drop(mdspace.run(&["remove", &name, image(*member)])),
        }
    }
    match leg.end {
        End::Stop => {
            drop(nbd);
            mdspace.succeed(&["stop", &name]);
        }
        End::Kill | End::PowerCut => mdspace.kill(),
    }
    read
}

pub(super) fn name(history: &History) -> String {
    format!("h{}", history.seed)
}

/// Starts the array with all images that are something to it.
pub(super) fn start(history: &History, mdspace: &Mdspace, arguments: &[&str]) -> Nbd {
    let (name, mut all) = (name(history), vec![arguments[0]]);
    let serve = mdspace.serve(&name);
    all.extend([&*name, "--run", &serve]);
    all.extend(&arguments[1..]);
    let known = |role: &Role| matches!(role, Role::Member | Role::Filling | Role::Replaced);
    let present = present(history).filter(|(_, role)| known(role));
    all.extend(present.map(|(image, _)| path_text(&history.images[image])));
    mdspace.succeed(&all);
    mdspace.connect(&name)
}

/// The images with what they were when the leg began.
pub(super) fn present(history: &History) -> impl Iterator<Item = (usize, Role)> {
    history.before.iter().copied().enumerate()
}

fn read_all(nbd: &mut Nbd) -> Vec<u8> {
    let mut content = Vec::new();
    while (content.len() as u64) < nbd.bytes {
        let left = nbd.bytes - content.len() as u64;
        content.extend(nbd.read(content.len() as u64, left.min(READ_BYTES) as u32));
    }
    content
}
