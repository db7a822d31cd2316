//! `mdspace bench`: what an array gives, beside what its members give and what physics allows.

mod figures;
mod limits;
mod load;
mod measure;
mod run;
mod table;

pub(crate) use limits::limits;
pub(crate) use run::run;

pub(crate) use load::Pattern;

/// fio's words for a pattern.
impl std::str::FromStr for Pattern {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (random, write) = match word {
            "read" => (false, false),
            "write" => (false, true),
            "randread" => (true, false),
            "randwrite" => (true, true),
            _ => return Err(format!("{word:?} is none of read, write, randread, randwrite")),
        };
        Ok(Self { random, write })
    }
}
