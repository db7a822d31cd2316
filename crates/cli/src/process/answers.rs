//! What the serving process does for each request on its control socket.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mdspace_engine::array::settings::SettingError;
use mdspace_engine::array::{Action, CommandError, Reply as Done, Undecided};
use mdspace_engine::backend::MemberId;
use mdspace_engine::paths::Paths;
use mdspace_engine::status::MemberStatus;
use mdspace_format::Uuid;
use mdspace_front::Address;
use mdspace_io::{OpenError, OpenMode, RunningArray, SetError};

use super::array::OrderError;
use super::decided;
use super::ending::Served;
use super::fronts::Next;
use super::spares::Wanted;
use super::{Prepared, ServingProcess};
use crate::control::server::{Answer, Replies};
use crate::control::{Reply, Request};
use crate::failure::{Code, Failure};
use crate::member_probe::{self, Probed, Purpose};
use crate::report::MemberReport;
use crate::settings;

/// How long a device that was not taken may take to be let go.
const LET_GO_WITHIN: Duration = Duration::from_secs(5);

impl Answer for ServingProcess {
    fn answer(&self, request: Request, replies: &mut Replies<'_>) -> io::Result<()> {
        match request {
            Request::Events { follow } => self.recorder.tell(follow, replies),
            Request::Stop { force, restarts: true } => self.stop_to_restart(force, replies),
            Request::Stop { force, .. } => self.stop_and_tell(force, replies),
            Request::GiveSpare { group, bytes, but_for } => match self.begin_move() {
                Ok(_move) => self.give_and_tell(&group, &Wanted { bytes, but_for }, replies),
                Err(failure) => replies.send(&Reply::Failed { failure }),
            },
            other => {
                let answer = self.act(other);
                // What it does not say now is looked at later.
                let _ = self.recorder.ask_and_look(|| self.array.status());
                replies.send(&reply(answer))
            }
        }
    }

    fn sign_of_life(&self, given: Box<dyn FnOnce() + Send>) {
        self.array.sign_of_life(given);
    }
}

pub(super) fn reply(result: Result<Reply, Failure>) -> Reply {
    result.unwrap_or_else(|failure| Reply::Failed { failure })
}

/// Whether an order changes what the configuration says of the array.
fn changes_configuration(request: &Request) -> bool {
    match request {
        Request::Add { .. }
        | Request::ReAdd { .. }
        | Request::Remove { .. }
        | Request::Replace { .. }
        | Request::GiveSpare { .. }
        | Request::Readonly
        | Request::Readwrite
        | Request::Set { .. }
        | Request::Serve { .. }
        | Request::Unserve { .. } => true,
        // What failed says so itself. A stop may wait for a member that is to be failed, or for a path.
        Request::Fail { .. }
        | Request::Detail { .. }
        | Request::Stop { .. }
        | Request::Configuration
        | Request::AcceptDoubt
        | Request::Action { .. }
        | Request::Get { .. }
        | Request::Events { .. }
        | Request::Message { .. } => false,
    }
}

impl ServingProcess {
    /// Stops for a start that follows, and says how the array was: no order that changes it is done after that. Where
    /// one is under way, nothing is stopped.
    fn stop_to_restart(&self, force: bool, replies: &mut Replies<'_>) -> io::Result<()> {
        if self.is_stopped() {
            return self.stop_and_tell(force, replies);
        }
        let what = format!("cannot restart {}", self.name);
        if let Err(failure) = self.array.members().refuse_hung_paths(&what) {
            return replies.send(&Reply::Failed { failure });
        }
        let written = self.keep_changes_out().and_then(|quiet| Ok((quiet, self.configuration()?)));
        let (quiet, config) = match written {
            Ok(written) => written,
            Err(failure) => return replies.send(&Reply::Failed { failure }),
        };
        let words = |notes| Reply::Stopped { notes, config: Box::new(config) };
        let sent = self.stop_and_tell_as(force, Next::Restart, replies, words);
        if self.is_stopped() {
            quiet.stay();
        }
        sent
    }

    fn act(&self, request: Request) -> Result<Reply, Failure> {
        let _change = changes_configuration(&request).then(|| self.begin_change()).transpose()?;
        match request {
            Request::Detail { .. } | Request::Get { .. } | Request::Configuration => {
                tracing::debug!("{request:?}");
            }
            _ => tracing::info!("ordered: {request:?}"),
        }
        match request {
            Request::Detail { claims } => {
                Ok(Reply::Detail { report: Box::new(self.report_with(claims)?) })
            }
            Request::Add { members, probed } => self.add(&members, false, &probed),
            Request::ReAdd { members } => self.add(&members, true, &Probed::default()),
            Request::Remove { members } => self.remove(&members),
            Request::Fail { members, force } => self.fail(&members, force),
            Request::Replace { member, with, probed } => {
                if with.is_none() {
                    self.refuse_without_spare(&member)?;
                }
                self.replace(&member, with.as_deref(), &probed)
            }
            Request::Configuration => Ok(Reply::Configuration {
                config: Box::new(self.configuration()?),
                foreground: self.saved.foreground(),
                tells_at_stop: true,
            }),
            Request::Readonly => self.allow_writes(false),
            Request::Readwrite => self.allow_writes(true),
            Request::AcceptDoubt => self.simple("nothing was accepted", Action::AcceptDoubt),
            Request::Action { action, force_parity, trust, for_s } => {
                self.sync_action_for(&action, force_parity, trust.as_deref(), for_s)
            }
            Request::Get { key } => self.get(key.as_deref()),
            Request::Set { key, value } => self.set(&key, &value),
            Request::Serve { front } => {
                self.provide_for(&[], 1, &format!("cannot serve {} at {front}", self.name))?;
                let run_dir = self.spares.run_dir();
                let front = Prepared::new(&address(&front)?, &self.name, run_dir)?;
                let note = self.fronts.open(front, &self.name, &self.array)?;
                Ok(Reply::Done { notes: vec![note] })
            }
            Request::Unserve { front, force } => {
                self.fronts.close(&address(&front)?, &self.name, force).map(|()| Reply::done())
            }
            Request::Message { member, words } => self.message(member.as_deref(), &words),
            Request::Stop { .. } | Request::Events { .. } | Request::GiveSpare { .. } => {
                unreachable!("answered before, with replies of their own")
            }
        }
    }

    /// Sends a message to a multipath member: the one named, else the only one, else the one that has
    /// the path that the message names. The operator's word about late writes is about a plain member as well.
    fn message(&self, member: Option<&str>, words: &[String]) -> Result<Reply, Failure> {
        let all = self.array.members().paths();
        let path = words.get(1).filter(|_| words[0].ends_with("_path"));
        let fenced = fenced_by(words);
        let fence_member = || {
            let what = format!("cannot do {}", words.join(" "));
            fenced.map_or(Ok(false), |named| self.array.fenced(named, &what))
        };
        let is_path = |named| all.iter().any(|(_, paths)| has_path(paths, named));
        if !fenced.is_some_and(is_path) && fence_member()? {
            return Ok(Reply::done());
        }
        let is_it = |(name, paths): &&(String, Arc<Paths>)| match member {
            Some(member) => name == member,
            None => all.len() == 1 || path.is_some_and(|path| has_path(paths, path)),
        };
        let found: Vec<_> = all.iter().filter(is_it).collect();
        match found[..] {
            [(_, paths)] => {
                message(paths, words)?;
                fence_member()?;
                Ok(Reply::done())
            }
            _ => {
                if all.is_empty() {
                    let why = format!("{} has no member with several paths", self.name);
                    let cure = "messages are for multipath devices and members: see `mdspace help multipath`";
                    return Err(Failure::new("no member to tell it", why, cure));
                }
                let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
                let why = format!("{} has these multipath members: {}", self.name, names.join(" "));
                Err(Failure::new("no member to tell it", why, "name one with --member=MEMBER"))
            }
        }
    }

    pub(super) fn add(
        &self,
        words: &[String],
        only_back: bool,
        probed: &Probed,
    ) -> Result<Reply, Failure> {
        let mut notes = Vec::new();
        for word in words {
            match self.add_one(word, only_back, probed) {
                Ok(done) => notes.extend(done),
                Err(failure) => return Err(failure.after(&notes)),
            }
        }
        Ok(Reply::Done { notes })
    }

    fn add_one(
        &self,
        word: &str,
        only_back: bool,
        probed: &Probed,
    ) -> Result<Vec<String>, Failure> {
        let what = format!("cannot add {word} to {}", self.name);
        let purpose = match only_back {
            true => Purpose::known(&what),
            false => Purpose::new_member(&what),
        };
        self.provide_for(&[word.to_owned()], 0, &what)?;
        self.refuse_present(word, &what)?;
        self.forget_old_self(word);
        self.array.refuse_owing(word, &what)?;
        if self.fronts.are_below(word) {
            let error = OpenError::LeadsBack { name: word.to_owned() };
            return Err(member_probe::refused(error, &purpose));
        }
        let opened = self.array.members().open(word, OpenMode::RUN, probed, &purpose);
        let (member, info) = opened?;
        // Where a file has holes its file system answers, and no read arrives at a front.
        let identity = self.array.members().table().identity(member);
        let file_system = identity.and_then(|identity| identity.file_system());
        let is_within = file_system.is_some_and(|device| self.fronts.bear(device));
        if is_within || self.array.leads_back(member, &info) {
            self.array.members().close(member);
            let error = OpenError::LeadsBack { name: word.to_owned() };
            return Err(member_probe::refused(error, &purpose));
        }
        let taken = self.array.order_to_take(Action::Add { member, info, only_back }, member);
        let done = match taken {
            Ok(Done::Added { by_bitmap: true }) => "back in its slot, by the bitmap",
            Ok(_) => "added as a spare",
            Err(error) => {
                // Whom the array may still take in stays open until it does not.
                if matches!(error, OrderError::Refused(_)) {
                    // Who hears that may use it elsewhere at once.
                    self.array.members().close_and_wait(member, LET_GO_WITHIN);
                }
                return Err(error.failure(&what));
            }
        };
        let mut notes = vec![format!("{word}: {done}")];
        notes.extend(self.goes_on_with(word));
        Ok(notes)
    }

    /// Remembers of a member that was added that the array goes on with it, where its parts had run apart. Gives what did
    /// not succeed.
    fn goes_on_with(&self, word: &str) -> Option<String> {
        let status = self.array.status().ok()?;
        let is_it = |member: &&MemberStatus| {
            self.array.members().find(&member.name) == self.array.members().find(word)
        };
        let device = status.members.iter().find(is_it)?.device_uuid;
        let kept = decided::keep_added(status.uuid, device, self.spares.run_dir().path());
        let error = kept.err()?;
        Some(format!("{}: the next start may ask again what was decided: {error}", self.name))
    }

    /// One that the array has already would be taken for another one.
    fn refuse_present(&self, word: &str, what: &str) -> Result<(), Failure> {
        let Some(known) = self.array.members().find(word) else { return Ok(()) };
        let report = self.report()?;
        let is_it = |member: &&MemberReport| {
            !member.is("faulty") && self.array.members().find(&member.member) == Some(known)
        };
        match report.array.members.iter().find(is_it) {
            None => Ok(()),
            Some(member) => {
                let role = if member.is_spare() { "spare" } else { "member" };
                let why = format!("it is a {role} of the array already");
                Err(Failure::new(what, why, "give another one"))
            }
        }
    }

    /// A member that failed and comes back is still held open under its old handle.
    fn forget_old_self(&self, word: &str) {
        if let Some(old) = self.array.members().find(word)
            && self.array.refuse_owing(word, "").is_ok()
            && self.array.order(Action::Remove { member: old }).is_ok()
        {
            self.array.members().close(old);
        }
    }

    fn remove(&self, words: &[String]) -> Result<Reply, Failure> {
        let mut notes = Vec::new();
        for word in self.with_failed(words)? {
            let what = format!("cannot remove {word} from {}", self.name);
            let found = self.array.members().find(&word);
            let uuid = self.device_uuid(found)?;
            if let Some(member) = found {
                self.array
                    .order(Action::Remove { member })
                    .map_err(|error| error.failure(&what))?;
                notes.extend(self.array.members().hung_path_note(member, &word));
                self.array.members().close(member);
            }
            // By that name it may have been known before it came in, or be missing.
            let is_forgotten = self.forget(&word, uuid);
            match (found, is_forgotten) {
                (Some(_), _) => {}
                (None, true) => notes.push(format!(
                    "{word}: forgotten; `mdspace save {}` writes that down",
                    self.name
                )),
                (None, false) => return Err(refused(&what, &CommandError::NotAMember)),
            }
        }
        Ok(Reply::Done { notes })
    }

    /// What a member is by its superblock; none of what is no member.
    fn device_uuid(&self, member: Option<MemberId>) -> Result<Option<Uuid>, Failure> {
        let Some(member) = member else { return Ok(None) };
        let status = self.array.status()?;
        self.identify_known(&status);
        let is_it = |known: &&MemberStatus| self.array.members().find(&known.name) == Some(member);
        Ok(status.members.iter().find(is_it).map(|known| known.device_uuid))
    }

    /// The words, with `failed` as the members that failed.
    fn with_failed(&self, words: &[String]) -> Result<Vec<String>, Failure> {
        let report = self.report()?;
        let failed = || report.array.members.iter().filter(|member| member.is("faulty"));
        let members = words.iter().flat_map(|word| match word.as_str() {
            "failed" | "faulty" => failed().map(|member| member.member.clone()).collect(),
            other => vec![other.to_owned()],
        });
        Ok(members.collect())
    }

    fn fail(&self, words: &[String], force: bool) -> Result<Reply, Failure> {
        for word in words {
            let what = format!("cannot fail {word} of {}", self.name);
            let Some(member) = self.array.members().find(word) else {
                return Err(refused(&what, &CommandError::NotAMember));
            };
            self.array
                .order(Action::Fail { member, force })
                .map_err(|error| error.failure(&what))?;
        }
        Ok(Reply::done())
    }

    /// Has a member replaced, by a spare of the array or by a member that becomes one first.
    fn replace(&self, word: &str, with: Option<&str>, probed: &Probed) -> Result<Reply, Failure> {
        let what = format!("cannot replace {word} in {}", self.name);
        let find = |word| self.array.members().find(word);
        let no_member = || refused(&what, &CommandError::NotAMember);
        let member = find(word).ok_or_else(no_member)?;
        let mut notes = Vec::new();
        let spare = match with {
            None => None,
            Some(with) => match find(with) {
                Some(spare) => Some(spare),
                None => {
                    notes = self.add_one(with, false, probed)?;
                    Some(find(with).ok_or_else(no_member)?)
                }
            },
        };
        let order = Action::Replace { member, with: spare };
        self.array.order(order).map_err(|error| error.failure(&what).after(&notes))?;
        notes.push(match with {
            Some(with) => format!("{with} takes the place of {word}"),
            None => format!("the next spare takes the place of {word}"),
        });
        Ok(Reply::Done { notes })
    }

    /// An order that waits for a spare that is not there yet would look as if it were carried out.
    fn refuse_without_spare(&self, word: &str) -> Result<(), Failure> {
        let what = format!("cannot replace {word} in {}", self.name);
        let report = self.report()?;
        let waits = |member: &MemberReport| member.is_spare() && !member.is("rebuilding");
        match report.array.members.iter().any(waits) {
            true => Ok(()),
            false => {
                let cure = "add one first, or name it: --with=MEMBER";
                Err(Failure::new(what, "the array has no spare", cure))
            }
        }
    }

    fn simple(&self, what: &str, action: Action) -> Result<Reply, Failure> {
        let what = format!("{what} on {}", self.name);
        self.array.order(action).map_err(|error| error.failure(&what))?;
        Ok(Reply::done())
    }

    /// What a repair is to do where it is not known which member is wrong.
    fn undecided(&self, force_parity: bool, trust: Option<&str>) -> Result<Undecided, Failure> {
        let Some(word) = trust else {
            return Ok(if force_parity { Undecided::ByData } else { Undecided::Leave });
        };
        let member = self.array.members().find(word);
        member.map(Undecided::ByMember).ok_or_else(|| {
            refused(&format!("cannot trust {word} in {}", self.name), &CommandError::NotAMember)
        })
    }

    /// As [`sync_action`](Self::sync_action), for so many seconds and from where the last such one ended.
    fn sync_action_for(
        &self,
        word: &str,
        force_parity: bool,
        trust: Option<&str>,
        for_s: Option<u64>,
    ) -> Result<Reply, Failure> {
        let Some(for_s) = for_s else { return self.sync_action(word, force_parity, trust) };
        if !matches!(word, "check" | "repair") {
            let why = "only a check or repair has a time to spend";
            return Err(Failure::new("nothing was started", why, "give --for with one of them"));
        }
        self.go_on_with_scrub();
        let reply = self.sync_action(word, force_parity, trust)?;
        self.give_scrub(Duration::from_secs(for_s));
        self.recorder.poke();
        Ok(reply)
    }

    fn sync_action(
        &self,
        word: &str,
        force_parity: bool,
        trust: Option<&str>,
    ) -> Result<Reply, Failure> {
        if word != "repair" && (force_parity || trust.is_some()) {
            let cure = "give --force-parity and --trust with `repair` only";
            return Err(Failure::new(
                "nothing was started",
                "only a repair changes anything",
                cure,
            ));
        }
        let action = match word {
            "idle" => Action::Idle,
            "frozen" => Action::Freeze,
            "resync" | "recover" => Action::Sync,
            "check" => Action::Check,
            "repair" => Action::Repair(self.undecided(force_parity, trust)?),
            other => {
                let why = format!("{other:?} is no action");
                return Err(Failure::new(
                    "nothing was started",
                    why,
                    "idle, frozen, resync, recover, check, repair",
                )
                .with_code(Code::Usage));
            }
        };
        self.simple(&format!("cannot start {word}"), action)
    }

    fn allow_writes(&self, allowed: bool) -> Result<Reply, Failure> {
        if allowed && self.array.members().are_read_only() {
            let why = "its members are open for reading alone: it was assembled with --readonly";
            let cure = format!(
                "`mdspace stop {name}`, then assemble it without --readonly, and without `readonly = true` in its \
                 configuration",
                name = self.name
            );
            return Err(Failure::new(format!("cannot allow writes on {}", self.name), why, cure));
        }
        let reply = match allowed {
            true => self.simple("cannot allow writes", Action::ReadWrite),
            false => self.simple("cannot stop writes", Action::ReadOnly),
        }?;
        self.fronts.follow(&self.array)?;
        Ok(reply)
    }

    fn get(&self, key: Option<&str>) -> Result<Reply, Failure> {
        let mut values = settings::values(&self.report()?.array);
        let kept = self.array.with_running(RunningArray::setting_values).unwrap_or_default();
        values.extend(kept.into_iter().map(|(key, value)| (key.to_owned(), value)));
        values.push(("spare_group".to_owned(), self.spares.name().unwrap_or_default()));
        if let Some(key) = key {
            values.retain(|(name, _)| name == key);
            if values.is_empty() {
                let cure = format!("list them with `mdspace get {}`", self.name);
                let failure = Failure::new(format!("cannot get {key}"), "no such key", cure);
                return Err(failure.with_code(Code::Usage));
            }
        }
        Ok(Reply::Values { values })
    }

    /// Sets what a configuration says; gives a line for each key that could not be. Keys that bound each
    /// other are set again after the others, until none more can be.
    pub(super) fn set_all(&self, settings: &BTreeMap<String, String>) -> Vec<String> {
        let mut left: Vec<(&String, &String)> = settings.iter().collect();
        loop {
            let (tried, mut failures) = (left.len(), Vec::new());
            left.retain(|(key, value)| {
                self.set(key, value).err().map(|failure| failures.push(failure.why)).is_some()
            });
            if left.is_empty() || left.len() == tried {
                return failures;
            }
        }
    }

    fn set(&self, key: &str, value: &str) -> Result<Reply, Failure> {
        match (key, value) {
            ("sync_action", action) => self.sync_action(action, false, None),
            ("array_state", "readonly") => self.act(Request::Readonly),
            ("array_state", "active" | "clean") => self.act(Request::Readwrite),
            ("array_state", _) => Err(Failure::new(
                format!("cannot set {key} to {value}"),
                "no such value",
                "it takes readonly, active",
            )
            .with_code(Code::Usage)),
            ("spare_group", word) if !is_word(word) => {
                let why = "a group has one word for a name, without blanks";
                let cure = "give a word, as spare_group=shelf; an empty one leaves the group";
                let failure = Failure::new(format!("cannot set {key} to {word:?}"), why, cure);
                Err(failure.with_code(Code::Usage))
            }
            ("spare_group", word) => {
                self.spares.set_name(word);
                self.recorder.poke();
                self.saved.note(key, word);
                Ok(Reply::done())
            }
            ("want_replacement", member) => self.replace(member, None, &Probed::default()),
            _ => self.set_kept(key, value),
        }
    }

    /// Sets one of the keys that the engine keeps.
    fn set_kept(&self, key: &str, value: &str) -> Result<Reply, Failure> {
        let set = self.array.with_running(|running| running.set(key, value));
        let (refused, cure, code) = match set {
            Some(Ok(())) => {
                self.saved.note(key, value);
                return Ok(Reply::done());
            }
            Some(Err(error)) => {
                let code = match error {
                    SetError::Refused(_) | SetError::Cpus { .. } => Code::Usage,
                    SetError::Start(_) => Code::Failed,
                };
                (error.to_string(), cure_of_setting(key, &error), code)
            }
            None => (CommandError::Stopped.to_string(), "assemble it again", Code::Failed),
        };
        Err(Failure::new(format!("cannot set {key} to {value}"), refused, cure).with_code(code))
    }
}

/// Whether it can stand where words are parted by blanks and lines.
fn is_word(text: &str) -> bool {
    !text.chars().any(|letter| letter.is_whitespace() || letter.is_control())
}

fn cure_of_setting(key: &str, error: &SetError) -> &'static str {
    use SettingError::{Fixed, ReadOnly, Unknown};
    match (key, error) {
        ("stripe_size", SetError::Refused(Fixed { .. })) => "assemble the array with --stripe-size",
        ("stripe_hash_locks", SetError::Refused(Fixed { .. })) => {
            "assemble the array with --stripe-hash-locks"
        }
        (_, SetError::Start(_)) => "see `mdspace doctor`",
        (_, SetError::Refused(Unknown { .. } | ReadOnly { .. })) => {
            "`mdspace get NAME` lists the keys; sync_action and array_state can be set too"
        }
        _ => "give a value that the key takes",
    }
}

/// Whom the operator's word is about that nothing sent to it can be done any more.
fn fenced_by(words: &[String]) -> Option<&str> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fail_path", named, "--fenced"] | ["fail_path", "--fenced", named] => Some(named),
        _ => None,
    }
}

fn has_path(paths: &Paths, named: &str) -> bool {
    let status = paths.status();
    status.groups.iter().flat_map(|group| &group.paths).any(|path| path.member == named)
}

/// Sends a message of dm's to a multipath device.
pub(super) fn message(paths: &Arc<Paths>, words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    paths.message(&words, mdspace_io::now()).map_err(|why| {
        Failure::new(format!("cannot do {}", words.join(" ")), why, "see `mdspace help message`")
    })
}

pub(super) fn address(front: &str) -> Result<Address, Failure> {
    front.parse().map_err(|error| {
        let cure = "give block, ublk, nbd-device, loop, fuse:/directory, nbd:unix:/path.sock, \
                    nbd:tcp:[host:]port or vhost-user:/path.sock";
        Failure::new(format!("{front} is no front"), error, cure)
    })
}

pub(super) fn refused(what: &str, error: &CommandError) -> Failure {
    let cure = match error {
        CommandError::NotAMember => "see `mdspace detail` for the members",
        CommandError::Active => "`mdspace fail` it first",
        CommandError::LastMember => "`mdspace stop` the array to let go of it",
        CommandError::Needed => "replace another member first, or use --force and lose data",
        CommandError::NeedsLate { .. } => {
            "try again when they answer, fail one of them instead, or use --force and lose data"
        }
        CommandError::HoldsAlone { .. } => {
            "wait for the resync with `mdspace wait`, replace another member first, or use --force and \
             lose those data"
        }
        CommandError::IsWritten => {
            "try again when the write has ended, fail the member that does not answer it, or use --force"
        }
        CommandError::IsAhead { .. } => {
            "try again when they have landed, or use --force and lose them"
        }
        CommandError::IsRead { .. } => {
            "wait for the resync with `mdspace wait`, fail another copy, or use --force"
        }
        CommandError::DoesNotFit(_) => "give a larger device",
        CommandError::BlocksDoNotFit(_) => {
            "give a device whose blocks are no larger than the array's"
        }
        CommandError::NotReplaceable(_) => "see `mdspace detail` for what each member is",
        CommandError::NotBack(_) => "`mdspace add` rebuilds it from the others",
        CommandError::NoRedundancy => "use a level with redundancy",
        CommandError::NothingInDoubt => {
            "there is nothing to do: see `In Doubt` of `mdspace detail`"
        }
        CommandError::NoCopies => "use --force-parity, which believes the data",
        CommandError::Busy(_) => {
            "wait for it with `mdspace wait`, or end it: `mdspace action NAME idle`"
        }
        CommandError::Broken { .. } => {
            "`mdspace stop` it, then ask `mdspace explain MEMBER...`; docs/recovery.md helps"
        }
        CommandError::ReadOnly | CommandError::NoSyncReadOnly => {
            "allow writes with `mdspace readwrite`"
        }
        CommandError::MayLand(_) => {
            "use it for nothing else before it answers again or was reset: what is written there may be overwritten"
        }
        CommandError::Unanswered => "wait until the device answers again, or give another one",
        CommandError::Metadata(_) | CommandError::Stopped => "look at the log of its process",
    };
    let code = match error {
        CommandError::Broken { .. } => Code::Broken,
        CommandError::ReadOnly | CommandError::NoSyncReadOnly => Code::ReadOnly,
        CommandError::NotAMember => Code::NoMember,
        _ => Code::Failed,
    };
    Failure::new(what, error, cure).with_code(code)
}
