//! `mdspace assemble --scan`: every array that is found, each by a command of its own.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use mdspace_format::Uuid;
use mdspace_io::{name_of_path, path_of_name};

use super::Outcome;
use crate::args::{ArrayName, AssembleArgs};
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::member_probe::is_same_place;
use crate::member_search::{block_devices, superblocks_of};
use crate::output;
use crate::run_dir::RunDir;

/// An array that was found.
#[derive(Default)]
struct Found {
    /// As its configuration calls it, else as its members do.
    name: Option<ArrayName>,
    config: Option<PathBuf>,
    members: Vec<PathBuf>,
}

/// Assembles all that is found and does not run. Exit 1 where some array could not be.
pub(crate) fn run(args: &AssembleArgs) -> Outcome {
    let run_dir = RunDir::open()?;
    let mut found: BTreeMap<Uuid, Found> = BTreeMap::new();
    let mut places = match args.device.is_empty() {
        true => block_devices().unwrap_or_default(),
        false => args.device.clone(),
    };
    let mut failures = BTreeMap::new();
    for (name, file) in configurations()? {
        let config = match Config::read(&file) {
            Ok(config) => config,
            Err(failure) => {
                failures.insert(name, failure);
                continue;
            }
        };
        let names = config.members.iter().chain(&config.missing);
        places.extend(names.map(|name| path_of_name(name)).filter(|path| path.is_absolute()));
        if let Some(uuid) = config.array() {
            let configured = Found { name: Some(name), config: Some(file), members: Vec::new() };
            found.insert(uuid, configured);
        }
    }
    for (place, superblock) in superblocks_of(places) {
        if let Err(error) = &superblock
            && error.kind() == io::ErrorKind::TimedOut
        {
            let why = format!("{}: {error}", name_of_path(&place));
            let cure = "look at the device and the kernel's log";
            output::print_error(&Failure::new("a device was left out", why, cure));
        }
        // What is no member, or cannot be read, is not ours to complain about.
        let Ok(Some(superblock)) = superblock else { continue };
        let array = found.entry(superblock.set_uuid).or_default();
        if array.name.is_none() {
            array.name = superblock.set_name.short().parse().ok();
        }
        if !array.members.iter().any(|known| is_same_place(known, &place)) {
            array.members.push(place);
        }
    }
    // Without its configuration an array might be served where or how it must not be.
    let is_readable =
        |array: &Found| !array.name.as_ref().is_some_and(|n| failures.contains_key(n));
    found.retain(|_, array| !array.members.is_empty() && is_readable(array));
    failures.values().for_each(output::print_error);
    if found.is_empty() {
        let cure = "name where to look: --device=PATH";
        return Err(Failure::new("no array was assembled", "no member was found", cure));
    }
    let (mut all, mut notes) = (failures.is_empty(), Vec::new());
    for (uuid, array) in &found {
        all &= assemble(args, &run_dir, *uuid, array, &mut notes)?;
    }
    output::end(&notes, Ok(()))?;
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The configurations that there are, in the order of their names.
fn configurations() -> Result<BTreeMap<ArrayName, PathBuf>, Failure> {
    let files = config::folder()?.map(fs::read_dir);
    let files = files.into_iter().flatten().flatten().flatten();
    let files = files.map(|file| file.path());
    let named = files.filter(|path| path.extension().is_some_and(|word| word == "toml"));
    Ok(named.filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path))).collect())
}

/// Runs the command that assembles one array; it prints for itself. True when the array runs. Adds lines for
/// the user.
fn assemble(
    args: &AssembleArgs,
    run_dir: &RunDir,
    uuid: Uuid,
    array: &Found,
    notes: &mut Vec<String>,
) -> Result<bool, Failure> {
    let Some(name) = &array.name else {
        notes.push(format!("{uuid}: its name is none for us; assemble it by --uuid"));
        return Ok(false);
    };
    if run_dir.having(name).is_running(name).unwrap_or(false) {
        notes.push(format!("{name}: runs already"));
        return Ok(true);
    }
    let program = env::current_exe().unwrap_or_else(|_| "mdspace".into());
    let mut command = Command::new(program);
    command.args(["assemble", name.as_str(), "--uuid", &uuid.to_string()]);
    let serving = &args.serving;
    let flags = [("--run", args.run), ("--force", args.force), ("--readonly", serving.readonly)];
    command.args(flags.iter().filter(|(_, on)| *on).map(|(flag, _)| flag));
    if let Some(config) = &array.config {
        command.arg("--config").arg(config);
    }
    let ended = command.args(&array.members).status();
    let ended = ended.map_err(|error| {
        Failure::new(format!("cannot assemble {name}"), error, "assemble it by its name")
    })?;
    Ok(ended.success())
}
