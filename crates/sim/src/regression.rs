//! A file that keeps a failure from coming back: a run that failed once and must not, or one that must notice a
//! broken rule.

use std::fs;
use std::path::Path;

use mdspace_engine::array::Rule;
use serde::{Deserialize, Serialize};

use crate::settings::{Settings, words};
use crate::trace::Trace;
use crate::trial;

/// What such a file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Regression {
    /// What happened once, or what is noticed, in one sentence.
    pub what: String,
    /// The title of the commit that mended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mended: Option<String>,
    /// A rule of the engine. The runs go well with it, and one of them fails without.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "words::rule")]
    pub rule: Option<Rule>,
    /// So many seeds are run, from that of the settings on: a change of the engine changes what a seed does.
    pub seeds: u64,
    /// The run.
    pub settings: Settings,
}

/// Seeds of a new file.
const SEEDS: u64 = 8;
const SEEDS_WITH_A_RULE: u64 = 40;

/// Why a file is none of these.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It does not hold a run.
    #[error(transparent)]
    Parse(#[from] toml::de::Error),
    /// The run cannot be put into it.
    #[error(transparent)]
    Write(#[from] toml::ser::Error),
}

impl Regression {
    /// One that a failure of `settings` gives, with their broken rule.
    pub fn new(what: String, settings: Settings) -> Self {
        let rule = settings.broken;
        let seeds = if rule.is_some() { SEEDS_WITH_A_RULE } else { SEEDS };
        Self { what, mended: None, rule, seeds, settings: Settings { broken: None, ..settings } }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Ok(toml::from_str(&fs::read_to_string(path)?)?)
    }

    /// Writes it to a file.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        Ok(fs::write(path, toml::to_string(self)?)?)
    }

    /// Its run, with the rule broken if it names one.
    pub fn broken(&self) -> Settings {
        Settings { broken: self.rule, ..self.settings.clone() }
    }

    /// Runs it. An error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let seeds = self.settings.seed..self.settings.seed.saturating_add(self.seeds);
        let run = |settings: Settings, seed| {
            trial::run(Settings { seed, ..settings }, Trace::silent(), None, None).result
        };
        for seed in seeds.clone() {
            let ended = run(self.settings.clone(), seed);
            ended.map_err(|reason| format!("seed {seed} fails: {}", reason.words))?;
        }
        let Some(rule) = self.rule else { return Ok(()) };
        let notices = |seed: u64| run(self.broken(), seed).is_err();
        match seeds.clone().any(notices) {
            true => Ok(()),
            false => Err(format!("seeds {seeds:?} do not notice that {} is broken", rule.name())),
        }
    }
}
