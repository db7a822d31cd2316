//! `mdspace assemble --scan`: every array that is found, each by a command of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use mdspace_engine::assembly::LeftOut;
use mdspace_format::{Superblock, Uuid};
use mdspace_io::{name_of_path, path_of_name, read_text};

use super::Outcome;
use crate::args::{ArrayName, AssembleArgs, MemberSpec};
use crate::config::{self, Config};
use crate::control::client::ask_all;
use crate::failure::Failure;
use crate::member_probe::which_leads_to;
use crate::member_search::{Known, beside, block_devices, say_unread, superblocks_of};
use crate::output;
use crate::process::launch;
use crate::report::ServedReport;
use crate::run_dir::{RunDir, Running};

/// Members that were found, with the superblock of each.
type Members = Vec<(PathBuf, Superblock)>;

/// An array that is to run.
struct Wanted {
    name: ArrayName,
    /// None where neither its configuration nor a member tells.
    uuid: Option<Uuid>,
    config: Option<PathBuf>,
    members: Vec<MemberSpec>,
}

/// A configuration, and where it is.
struct Configured {
    name: ArrayName,
    file: PathBuf,
    config: Config,
}

/// Assembles all that is found and does not run. Exit 1 where some array could not be.
pub(crate) fn run(args: &AssembleArgs) -> Outcome {
    let run_dir = RunDir::open()?;
    let (configured, broken) = configurations()?;
    let mut running = running(&run_dir);
    let mut places = match args.device.is_empty() {
        true => block_devices().unwrap_or_default(),
        false => args.device.clone(),
    };
    places.extend(configured.iter().flat_map(Configured::paths));
    let found = members_at(places);
    let (mut wanted, mut failures) = (Vec::new(), Vec::new());
    // Without its configuration an array might be served where or how it must not be.
    let mut uuids: Vec<Uuid> = Vec::new();
    let mut unclear: Vec<Unclear> = broken.iter().map(|broken| broken.unclear(&found)).collect();
    for configured in configured {
        let of_it = configured.uuids(&found);
        unclear.extend(of_it.is_empty().then(|| configured.unclear()));
        uuids.extend(of_it);
        match configured.wanted(&found) {
            Ok(array) => wanted.push(array),
            Err(failure) => failures.push(failure),
        }
    }
    let mut others: BTreeMap<Uuid, Members> = BTreeMap::new();
    for (place, superblock) in found {
        if !uuids.contains(&superblock.set_uuid) {
            others.entry(superblock.set_uuid).or_default().push((place, superblock));
        }
    }
    for (uuid, members) in others {
        let array = unconfigured(uuid, members);
        let runs = running.iter().any(|served| served.uuid == uuid.to_string());
        let name = array.as_ref().map(|array| &array.name).ok();
        let unclear = unclear.iter().find(|unclear| !runs && unclear.may_be_about(uuid, name));
        match (unclear, array) {
            (Some(unclear), _) => failures.push(unclear.failure(uuid)),
            (None, Ok(array)) => wanted.push(array),
            (None, Err(failure)) => failures.push(failure),
        }
    }
    failures.extend(broken.into_iter().map(|broken| broken.failure));
    failures.iter().for_each(output::print_error);
    if wanted.is_empty() && failures.is_empty() {
        let cure = "name where to look: --device=PATH";
        return Err(Failure::new("no array was assembled", "no member was found", cure));
    }
    let (mut all, mut notes) = (failures.is_empty(), Vec::new());
    for array in &wanted {
        match array.start(args, &run_dir, &mut running, &mut notes) {
            Ok(runs) => all &= runs,
            Err(failure) => {
                output::print_error(&failure);
                all = false;
            }
        }
    }
    output::end(&notes, Ok(()))?;
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The configurations that there are, in the order of their names, and those that cannot be used.
fn configurations() -> Result<(Vec<Configured>, Vec<Broken>), Failure> {
    let files = config::folder()?.map(fs::read_dir);
    let files = files.into_iter().flatten().flatten().flatten();
    let files = files.map(|file| file.path());
    let named = files.filter(|path| path.extension().is_some_and(|word| word == "toml"));
    let named = named.filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)));
    let named: BTreeMap<ArrayName, PathBuf> = named.collect();
    let (mut configured, mut broken) = (Vec::new(), Vec::new());
    for (name, file) in named {
        match Config::read(&file) {
            Ok(config) => configured.push(Configured { name, file, config }),
            Err(failure) => {
                let text = read_text(&file).unwrap_or_default();
                broken.push(Broken { name, file, text, failure });
            }
        }
    }
    Ok((configured, broken))
}

/// A configuration that cannot be used.
struct Broken {
    name: ArrayName,
    file: PathBuf,
    /// What it says, as far as that can be read.
    text: String,
    failure: Failure,
}

impl Broken {
    /// Of which arrays it may be: of those whose UUID, or a member of which, stands anywhere in it.
    fn unclear(&self, found: &Members) -> Unclear {
        let is_of_uuid = |letter: char| letter.is_ascii_hexdigit() || ":-.".contains(letter);
        let words = self.text.split(|letter| !is_of_uuid(letter));
        let said = words.filter_map(|word| word.parse::<Uuid>().ok());
        let quoted = self.text.split('"').map(path_of_name).filter(|path| path.is_absolute());
        let places: Vec<PathBuf> = found.iter().map(|(place, _)| place.clone()).collect();
        let led_to = quoted.filter_map(|path| which_leads_to(&path, &places));
        let led_to = led_to.map(|number| found[number].1.set_uuid);
        let is_named = |(place, _): &&(PathBuf, Superblock)| {
            std::path::absolute(place).is_ok_and(|place| names(&self.text, &name_of_path(&place)))
        };
        let named = found.iter().filter(is_named).map(|(_, superblock)| superblock.set_uuid);
        let uuids = said.chain(led_to).chain(named).collect();
        Unclear { name: self.name.clone(), file: self.file.clone(), uuids }
    }
}

/// Whether a text has a path as a whole: `/dev/sda10` does not name `/dev/sda1`.
fn names(text: &str, path: &str) -> bool {
    let goes_on = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
    let mut found = text.match_indices(path);
    found.any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + path.len()..]);
        !before.ends_with(goes_on) && !after.starts_with(goes_on)
    })
}

/// A configuration of which nobody knows for sure which array it is of.
struct Unclear {
    name: ArrayName,
    file: PathBuf,
    uuids: BTreeSet<Uuid>,
}

impl Unclear {
    /// Whether it may be of this array, which calls itself `name`.
    fn may_be_about(&self, uuid: Uuid, name: Option<&ArrayName>) -> bool {
        self.uuids.contains(&uuid) || name == Some(&self.name)
    }

    fn failure(&self, uuid: Uuid) -> Failure {
        let why = format!("{} may be of it, and does not say so", self.file.display());
        let cure = format!(
            "mend that, and say there uuid = \"{uuid}\" if it is; or assemble it by hand: \
             mdspace assemble NAME --uuid={uuid}"
        );
        Failure::new(format!("cannot assemble array {uuid}"), why, cure)
    }
}

/// Those of the places that hold a superblock. Those that cannot be read are named.
fn members_at(places: Vec<PathBuf>) -> Members {
    let mut members = Vec::new();
    for (place, superblock) in superblocks_of(places, None) {
        match superblock {
            Ok(Some(superblock)) => members.push((place, superblock)),
            Ok(None) => {}
            Err(error) => say_unread(&place, &error),
        }
    }
    members
}

impl Configured {
    /// Where its members are to be, as far as they have paths.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let names = self.config.members.iter().chain(&self.config.missing);
        names.map(|name| path_of_name(name)).filter(|path| path.is_absolute())
    }

    /// Its array, of the members that it names and of others that were found.
    fn wanted(self, found: &Members) -> Result<Wanted, Failure> {
        let uuid = self.uuid(found)?;
        let Self { name, file, config } = self;
        let failed = |why: String| {
            let what = format!("cannot use the configuration {}", file.display());
            Failure::new(what, why, "mend it")
        };
        let (mut members, left_out) = config.members_there(uuid).map_err(failed)?;
        say(&left_out);
        let of_it = found.iter().filter(|(_, superblock)| Some(superblock.set_uuid) == uuid);
        let left: Vec<PathBuf> =
            left_out.iter().map(|left_out| path_of_name(&left_out.member)).collect();
        let of_it = of_it.filter(|(place, _)| !left.contains(place));
        // Paths of a multipath member may be among what was found.
        let known = Known::new(&members, &config.device_uuids, found)?;
        let (more, left_out) = beside(&known, of_it.cloned().collect());
        say(&left_out);
        members.extend(more.into_iter().map(MemberSpec::Path));
        if members.is_empty() {
            let cure = format!("find them; where the array is gone, delete {}", file.display());
            return Err(Failure::new(
                format!("cannot assemble {name}"),
                "none of its members is there",
                cure,
            ));
        }
        Ok(Wanted { name, uuid, config: Some(file), members })
    }

    /// It says of no array that it is of it.
    fn unclear(&self) -> Unclear {
        let (name, file) = (self.name.clone(), self.file.clone());
        Unclear { name, file, uuids: BTreeSet::new() }
    }

    /// Of its array: where it does not say it, that of the members that it names.
    fn uuid(&self, found: &Members) -> Result<Option<Uuid>, Failure> {
        match self.uuids(found)[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(Failure::new(
                format!("cannot assemble {}", self.name),
                format!("{} names members of several arrays", self.file.display()),
                "say there which one is meant: uuid = \"UUID\"",
            )),
        }
    }

    /// The arrays that it may be about.
    fn uuids(&self, found: &Members) -> Vec<Uuid> {
        if let Some(uuid) = self.config.array() {
            return vec![uuid];
        }
        let named: Vec<PathBuf> =
            self.config.members.iter().map(|name| path_of_name(name)).collect();
        let named = found.iter().filter(|(place, _)| named.contains(place));
        let uuids: BTreeSet<Uuid> = named.map(|(_, superblock)| superblock.set_uuid).collect();
        uuids.into_iter().collect()
    }
}

/// An array that only its members tell of.
fn unconfigured(uuid: Uuid, found: Members) -> Result<Wanted, Failure> {
    let names = found.iter().map(|(_, superblock)| superblock.set_name.short().parse());
    let Some(name) = names.filter_map(Result::ok).next() else {
        let (why, cure) = ("its name is none for us", format!("assemble it: --uuid={uuid}"));
        return Err(Failure::new(format!("cannot assemble {uuid}"), why, cure));
    };
    let (members, left_out) = beside(&Known::default(), found);
    say(&left_out);
    let members = members.into_iter().map(MemberSpec::Path).collect();
    Ok(Wanted { name, uuid: Some(uuid), config: None, members })
}

fn say(left_out: &[LeftOut]) {
    for LeftOut { member, reason } in left_out {
        output::print_aside(&format!("{member} {reason}: left out"));
    }
}

/// An array that runs.
pub(super) struct Served {
    pub(super) name: ArrayName,
    pub(super) uuid: String,
    /// In the words by which it knows them.
    members: Vec<String>,
}

/// What runs and answers.
pub(super) fn running(run_dir: &RunDir) -> Vec<Served> {
    let running = run_dir.running().unwrap_or_default();
    let served = |(it, answer): (&Running, Result<ServedReport, Failure>)| {
        let ServedReport::Array(report) = answer.ok()? else { return None };
        let members = report.array.members.into_iter().map(|member| member.member).collect();
        Some(Served { name: it.name.clone(), uuid: report.array.uuid, members })
    };
    running.iter().zip(ask_all(&running)).filter_map(served).collect()
}

impl Wanted {
    /// Runs the command that assembles it; that prints for itself. True when the array runs, which `running` says
    /// afterwards. Adds lines for the user.
    fn start(
        &self,
        args: &AssembleArgs,
        run_dir: &RunDir,
        running: &mut Vec<Served>,
        notes: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let name = &self.name;
        if let Some(served) = running.iter().find(|served| self.is(served)) {
            notes.push(format!("{}: runs already", served.name));
            return Ok(true);
        }
        if run_dir.having(name).is_running(name).unwrap_or(false) {
            return Err(self.has_lost_its_name());
        }
        let failed = |error: io::Error| {
            Failure::new(format!("cannot assemble {name}"), error, "assemble it by its name")
        };
        let ended = self.command(args)?.status().map_err(failed)?;
        if let (true, Some(uuid)) = (ended.success(), self.uuid) {
            running.push(Served {
                name: name.clone(),
                uuid: uuid.to_string(),
                members: Vec::new(),
            });
        }
        Ok(ended.success())
    }

    /// Whether it is what runs. Where nothing tells its UUID, by its name and a member.
    fn is(&self, served: &Served) -> bool {
        if let Some(uuid) = self.uuid {
            return served.uuid == uuid.to_string();
        }
        let is_named = |member: &MemberSpec| {
            member.absolute().is_ok_and(|member| served.members.contains(&member))
        };
        served.name == self.name && self.members.iter().any(is_named)
    }

    fn has_lost_its_name(&self) -> Failure {
        let name = &self.name;
        let (what, cure) = match self.uuid {
            Some(uuid) => (
                format!("cannot assemble array {uuid}"),
                format!("stop that one, or choose a name: mdspace assemble NAME --uuid={uuid}"),
            ),
            None => (
                format!("cannot assemble {name}"),
                "stop that one; or say in its configuration which array it is: uuid = \"UUID\""
                    .to_owned(),
            ),
        };
        let why = format!("another array runs as {name}, or what runs so does not say what it is");
        Failure::new(what, why, cure)
    }

    fn command(&self, args: &AssembleArgs) -> Result<Command, Failure> {
        let mut command = launch::this_program();
        command.args(["assemble", self.name.as_str()]);
        if let Some(uuid) = self.uuid {
            command.args(["--uuid", &uuid.to_string()]);
        }
        let serving = &args.serving;
        let flags =
            [("--run", args.run), ("--force", args.force), ("--readonly", serving.readonly)];
        command.args(flags.iter().filter(|(_, on)| *on).map(|(flag, _)| flag));
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        let words = self.members.iter().map(|member| match member {
            MemberSpec::Path(path) => Ok(Path::as_os_str(path).to_owned()),
            other => other.absolute().map(OsString::from),
        });
        command.args(words.collect::<Result<Vec<_>, Failure>>()?);
        Ok(command)
    }
}
