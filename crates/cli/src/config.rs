//! The configuration of an array: a file `NAME.toml` that says of whom it is made, where it is served and
//! what its user set. A convenience: an array assembles without it all the same.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mdspace_engine::assembly::LeftOut;
use mdspace_format::{Superblock, Uuid};
use mdspace_io::{Identity, read_text};
use serde::{Deserialize, Deserializer, Serialize};

use crate::args::{ArrayName, AssembleArgs, MemberSpec};
use crate::failure::Failure;
use crate::member_probe::asked_of;
use crate::member_search;
use crate::own_dir;
use crate::settings;
use crate::udev;

mod known;
mod uuid_word;

pub(crate) use known::KnownMembers;
pub(crate) use uuid_word::UuidWord;

/// What the file says. A word that is not known is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Of the array; members of others are left out.
    pub(crate) uuid: Option<UuidWord>,
    /// In the words of the command line, paths from the root.
    pub(crate) members: Vec<String>,
    /// Members that are not there, until they are removed. What has such a name by now is looked at first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
    /// Fronts.
    pub(crate) serve: Vec<String>,
    /// Its members are opened to be read only.
    pub(crate) readonly: bool,
    /// It takes no writes until `readwrite`, though its members may be written to.
    pub(crate) refuse_writes: bool,
    pub(crate) lanes: Option<u16>,
    /// Bytes.
    pub(crate) stripe_size: Option<u64>,
    pub(crate) stripe_hash_locks: Option<u32>,
    /// Keys of `set`, with the values that they were set to.
    #[serde(deserialize_with = "numbers_too")]
    pub(crate) settings: BTreeMap<String, String>,
    /// What members are by their superblocks, whatever their names lead to by now.
    pub(crate) device_uuids: BTreeMap<String, UuidWord>,
}

/// Values as the array takes them, words; people write numbers as numbers.
fn numbers_too<'de, D: Deserializer<'de>>(reader: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a word or a number")]
    enum Value {
        Word(String),
        Number(i64),
    }
    let values = BTreeMap::<String, Value>::deserialize(reader)?;
    let word = |value| match value {
        Value::Word(word) => word,
        Value::Number(number) => number.to_string(),
    };
    Ok(values.into_iter().map(|(key, value)| (key, word(value))).collect())
}

impl Config {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |why: String| {
            let what = format!("cannot use the configuration {}", path.display());
            Failure::new(what, why, "mend it, or write it anew with `mdspace save NAME`")
        };
        let text = read_text(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let what = format!("there is no configuration {}", path.display());
                let cure = "check the name; `mdspace save NAME --config=FILE` writes one";
                Failure::new(what, error, cure)
            }
            _ => failed(error.to_string()),
        })?;
        toml::from_str(&text).map_err(|error| failed(error.to_string()))
    }

    /// Members that are there, and those that are not.
    fn known(&self) -> KnownMembers {
        let uuid = |name: &String| self.device_uuids.get(name).map(|word| word.0);
        let names = self.members.iter().chain(&self.missing);
        KnownMembers::new(self.array(), names.map(|name| (name.clone(), uuid(name))))
    }

    /// Its members, there or not, in the words of the command line.
    pub(crate) fn member_names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().chain(&self.missing).map(String::as_str)
    }

    /// The array that it is of; none where it does not say it.
    pub(crate) fn array(&self) -> Option<Uuid> {
        self.uuid.map(|word| word.0)
    }

    /// Its members that are there, wherever those of `array` are by now. Gives what was left out.
    pub(crate) fn members_there(
        &self,
        array: Option<Uuid>,
    ) -> Result<(Vec<MemberSpec>, Vec<LeftOut>), String> {
        let members = self.members.iter().map(|word| word.parse::<MemberSpec>());
        let members: Vec<_> = members.collect::<Result<_, _>>()?;
        let (mut there, gone): (Vec<_>, Vec<_>) = members.into_iter().partition(is_there);
        let away = self.add_back(&mut there, array);
        let is_device_gone = gone.iter().chain(&away).any(member_search::is_name_of_device);
        let follow =
            |array| member_search::follow(&mut there, array, &self.device_uuids, is_device_gone);
        let left_out = array.map(follow).transpose().map_err(|failure| failure.why)?;
        Ok((there, left_out.unwrap_or_default()))
    }

    /// Adds missing members that are back: what has such a name by now may be something else, or one of `members` under
    /// another name. Gives those that are not.
    fn add_back(&self, members: &mut Vec<MemberSpec>, array: Option<Uuid>) -> Vec<MemberSpec> {
        let missing = self.missing.iter().filter_map(|name| name.parse().ok()).collect();
        let known = |member: &MemberSpec| self.device_uuids.get(&member.absolute().ok()?);
        let is_it = |member: &MemberSpec, superblock: &Superblock| {
            known(member).is_none_or(|known| known.0 == superblock.device_uuid)
                && array.is_none_or(|array| superblock.set_uuid == array)
        };
        let mut taken: Vec<Identity> = members.iter().filter_map(identity_of).collect();
        let mut uuids: Vec<Uuid> = members.iter().filter_map(known).map(|known| known.0).collect();
        let mut away = Vec::new();
        for (member, found) in member_search::superblocks_of_members(missing, array) {
            let found = found.ok().flatten().filter(|superblock| is_it(&member, superblock));
            let Some(superblock) = found else {
                away.push(member);
                continue;
            };
            let identity = identity_of(&member);
            let is_known = identity.is_some_and(|identity| taken.contains(&identity));
            if !is_known && !uuids.contains(&superblock.device_uuid) {
                taken.extend(identity);
                uuids.push(superblock.device_uuid);
                members.push(member);
            }
        }
        away
    }

    /// With one more member, which may have been missing.
    pub(crate) fn and_member(mut self, name: String, device: Uuid) -> Self {
        self.missing.retain(|missing| *missing != name);
        if !self.members.contains(&name) {
            self.members.push(name.clone());
        }
        self.device_uuids.insert(name, UuidWord(device));
        self
    }

    /// Writes a file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder_of(path))?;
            let text = toml::to_string(self).map_err(io::Error::other)?;
            // A device or pipe would be gone from its place.
            if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
                return Err(io::Error::other("it exists and is no regular file"));
            }
            replace_file(path, &format!("{HEADING}{text}"))
        };
        write().map_err(|error| {
            let what = format!("cannot write the configuration {}", path.display());
            Failure::new(what, error, "say where it may be written: --config=FILE")
        })
    }
}

/// Puts a text in the place of a file: there is the old one or the new one, whatever happens.
pub(crate) fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let folder = folder_of(path);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(folder)?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where udev's rule looks.
const ROOTS_FOLDER: &str = "/etc/mdspace";

/// Debian's mdadm puts its udev rule in the initial RAM disk, where nothing of the root file system is.
const MD_IN_INITRAMFS: &str = "/usr/share/initramfs-tools/hooks/mdadm";

const HEADING: &str = "# Written by `mdspace save`; `mdspace assemble NAME` reads it.\n";

/// The folder of configurations, if there is one. Refused where another user could put a file there: an
/// array would be served as that file says.
pub(crate) fn folder() -> Result<Option<PathBuf>, Failure> {
    let folder = usual_folder();
    let is_there = own_dir::check(&folder).map_err(|why| not_safe(&folder, why))?;
    Ok(is_there.then_some(folder))
}

fn not_safe(folder: &Path, why: String) -> Failure {
    let what = format!("cannot use the folder of configurations {}", folder.display());
    let cure =
        "set MDSPACE_CONFIG_DIR to a directory that only you may write to, and that is no link";
    Failure::new(what, why, cure)
}

/// `$MDSPACE_CONFIG_DIR`, else the usual place for this user.
fn usual_folder() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("MDSPACE_CONFIG_DIR") {
        return folder;
    }
    if rustix::process::geteuid().is_root() {
        return ROOTS_FOLDER.into();
    }
    match (set("XDG_CONFIG_HOME"), set("HOME")) {
        (Some(config), _) => config.join("mdspace"),
        (None, Some(home)) => home.join(".config/mdspace"),
        (None, None) => env::temp_dir().join("mdspace-config"),
    }
}

/// Where an array's configuration is to be, unless the user says otherwise; the folder is made.
pub(crate) fn new_path(name: &ArrayName) -> Result<PathBuf, Failure> {
    let folder = usual_folder();
    own_dir::make(&folder).map_err(|why| not_safe(&folder, why))?;
    Ok(folder.join(file_name(name)))
}

/// Keeps the members of an array whose configuration is in its usual place from the kernel's md, at each boot. Gives a
/// line for the user where that needs something more.
pub(crate) fn keep_from_md(name: &ArrayName, array: Uuid) -> Result<Option<String>, Failure> {
    let (folder, array) = (usual_folder(), array.to_string());
    let is_new = udev::keep_from_md(&folder, &array, name).map_err(|error| {
        let what = format!("the kernel's md may take the members of {name} at the next boot");
        let why = format!("{}: {error}", folder.display());
        Failure::new(
            what,
            why,
            format!("see to it that files can be written there, then `mdspace save {name}`"),
        )
    })?;
    // One of another array that had this name.
    for other in udev::kept_from_md(&folder, name) {
        if other != settings::dashed(&array) {
            drop(udev::leave_to_md(&folder, &other));
        }
    }
    let is_early = folder == Path::new(ROOTS_FOLDER) && Path::new(MD_IN_INITRAMFS).exists();
    Ok((is_new && is_early).then(|| {
        format!("{name}: `update-initramfs -u` keeps its members from md before the root file system is mounted, too")
    }))
}

/// The same for an array that runs, where the configuration in its usual place is of it. A person may have written
/// that, or an older version.
pub(crate) fn keep_from_md_if_saved(name: &ArrayName, array: Uuid) -> Result<(), Failure> {
    let Some(path) = kept_path(name)? else { return Ok(()) };
    match Config::read(&path)?.array().is_none_or(|known| known == array) {
        true => keep_from_md(name, array).map(drop),
        false => Ok(()),
    }
}

/// What the configuration in the usual place says, if there is one.
pub(crate) fn saved(name: &ArrayName) -> Result<Option<Config>, Failure> {
    kept_path(name)?.map(|path| Config::read(&path)).transpose()
}

/// Takes an array out of the folder of configurations: it is not started from there any more, and its members are the
/// kernel's md's. Gives where its configuration is kept.
pub(crate) fn put_aside(name: &ArrayName) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = kept_path(name)? else { return Ok(None) };
    let kept = path.with_extension("toml.released");
    let rename = || -> io::Result<()> {
        fs::rename(&path, &kept)?;
        fs::File::open(usual_folder())?.sync_all()
    };
    rename().map_err(|error| {
        let what = format!("cannot put the configuration {} aside", path.display());
        Failure::new(what, error, "check the rights of the folder, then try again")
    })?;
    Ok(Some(kept))
}

/// The configuration that a new array of this name finds, in words: it is of an older one.
pub(crate) fn of_an_older_one(name: &ArrayName) -> Option<String> {
    let path = kept_path(name).ok()??;
    let path = path.display();
    Some(format!("{name}: {path} is of an older array: `mdspace save {name}` writes it anew"))
}

/// What systemd's unit starts in place of the members that were saved, in words: `NAME.env` beside the configuration
/// names others.
pub(crate) fn passed_over(name: &ArrayName) -> Option<String> {
    let path = usual_folder().join(format!("{name}.env"));
    let text = read_text(&path).ok()?;
    let value = |line: &str| line.trim().strip_prefix("MEMBERS=").map(|value| value.trim().len());
    // An empty one may stand in quotes.
    let names_some = text.lines().filter_map(value).next_back().is_some_and(|length| length > 2);
    let path = path.display();
    names_some.then(|| {
        format!("{name}: {path} sets MEMBERS, and systemd's unit starts those in place of what was saved: delete that line")
    })
}

/// Where it is, if it is there.
pub(crate) fn kept_path(name: &ArrayName) -> Result<Option<PathBuf>, Failure> {
    let path = folder()?.map(|folder| folder.join(file_name(name)));
    Ok(path.filter(|path| path.exists()))
}

fn file_name(name: &ArrayName) -> String {
    format!("{name}.toml")
}

/// Gives `assemble` what the configuration says and the command line does not. It is read where
/// `--config` names it, and where no member is named and there is one.
pub(crate) fn complete(args: &mut AssembleArgs) -> Result<(), Failure> {
    let path = match &args.serving.config {
        Some(path) if args.serving.save && !path.exists() => return Ok(()),
        Some(path) => path.clone(),
        None if args.members.is_empty() => match kept_path(args.name())? {
            Some(path) => path,
            None => return Ok(()),
        },
        None => {
            // Who is missing is known all the same.
            let path = kept_path(args.name()).ok().flatten();
            let config = path.and_then(|path| Config::read(&path).ok());
            args.serving.known = config.map(|config| config.known()).unwrap_or_default();
            return Ok(());
        }
    };
    let config = Config::read(&path)?;
    args.serving.known = config.known();
    let failed = |why: String| {
        Failure::new(format!("cannot use the configuration {}", path.display()), why, "mend it")
    };
    args.uuid = args.uuid.or(config.array());
    if args.members.is_empty() {
        (args.members, args.left_out) = config.members_there(args.uuid).map_err(failed)?;
    }
    let serving = &mut args.serving;
    if serving.serve.is_empty() {
        let fronts = config.serve.iter().map(|front| front.parse());
        let fronts = fronts.collect::<Result<_, mdspace_front::AddressError>>();
        serving.serve = fronts.map_err(|error| failed(error.to_string()))?;
    }
    serving.readonly |= config.readonly;
    serving.refuse_writes |= config.refuse_writes;
    serving.take(&config).map_err(failed)?;
    serving.settings = config.settings;
    Ok(())
}

/// What is not there counts as missing, and whether it can be done without is assembly's to say. Where the file
/// system does not say it, so does who opens it.
fn is_there(member: &MemberSpec) -> bool {
    match member {
        MemberSpec::Path(path) => asked_of(path, Path::exists).unwrap_or(true),
        _ => true,
    }
}

/// What a path leads to; none of other members, or where the file system does not say it.
fn identity_of(member: &MemberSpec) -> Option<Identity> {
    match member {
        MemberSpec::Path(path) => member_search::identity_of(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
