//! `mdspace release`.

use std::path::Path;

use mdspace_io::path_of_name;

use super::scan::running;
use super::{Outcome, save, unit};
use crate::args::ArrayName;
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::member_probe::asked_of;
use crate::output;
use crate::run_dir::{RunDir, Work};
use crate::{settings, udev};

/// Ends all that keeps the members of an array from the kernel's md.
pub(crate) fn run(name: &ArrayName) -> Outcome {
    let run_dir = RunDir::open_of(name)?;
    let cannot =
        |why: String, cure: String| Failure::new(format!("cannot release {name}"), why, cure);
    let failed = |error: std::io::Error, what: &str| {
        cannot(error.to_string(), format!("check the rights of {what}"))
    };
    let _turn = save::turn(&run_dir, name, Work::Save)?;
    // No process starts it meanwhile.
    let lock = run_dir.try_lock(name);
    let lock = lock.map_err(|error| failed(error, &run_dir.path().display().to_string()))?;
    let Some(_lock) = lock else {
        let why = format!("{name} runs: its members are in use");
        return Err(cannot(why, format!("stop it first: `mdspace stop {name}`")));
    };
    let config = config::saved(name)?;
    let array = config.as_ref().and_then(Config::array).map(|array| array.to_string());
    if let Some(other) = running(&run_dir).into_iter().find(|it| Some(&it.uuid) == array.as_ref()) {
        let why = format!("its members are in use: they run as {}", other.name);
        return Err(cannot(why, format!("stop it first: `mdspace stop {}`", other.name)));
    }
    let put_aside = config::put_aside(name)?;
    let mut was_kept = false;
    for folder in [config::folder()?, Some(run_dir.path().to_owned())].into_iter().flatten() {
        let of_config = array.iter().map(|array| settings::dashed(array));
        let arrays = udev::kept_from_md(&folder, name).into_iter().chain(of_config);
        for array in arrays {
            let entries = folder.join("by-uuid").display().to_string();
            let left = udev::leave_to_md(&folder, &array);
            was_kept |= left.map_err(|error| failed(error, &entries))?;
        }
    }
    if put_aside.is_none() && !was_kept {
        let why = "it has no configuration, and none of its members is kept from the kernel's md";
        let cure = "check the name; `mdadm --assemble --scan` starts what is md's";
        return Err(cannot(why.to_owned(), cure.to_owned()));
    }
    let mut notes = vec![format!("{name}: its members are the kernel's md's again")];
    if let (Some(config), Some(kept)) = (config, put_aside) {
        notes.push(format!("{name}: its configuration is kept as {}", kept.display()));
        notes.extend(config.member_names().filter_map(|member| look_again(name, member)));
    }
    notes.extend(unit::starts_it(name));
    output::end(&notes, Ok(()))
}

/// Has udev hand a member over now. Gives a line for the user where that is left to do.
fn look_again(name: &ArrayName, member: &str) -> Option<String> {
    let path = path_of_name(member);
    let told = asked_of(&path, |path: &Path| match path.exists() {
        true => udev::look_again(path),
        false => Ok(()),
    })?;
    let error = told.err()?;
    Some(format!("{name}: udev is not told of {member} ({error}): `udevadm trigger {member}`"))
}
