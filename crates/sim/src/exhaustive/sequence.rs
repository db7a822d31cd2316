//! What users and operators do: short sequences of operations, all of them.

use std::str::FromStr;

/// One thing that is done to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A write of one sector in the first row.
    Write,
    /// A write of the last sector of the first row and the first one of the second.
    Part,
    /// A write of the whole first row.
    Row,
    /// A write of one sector, the same as of [`Write`](Self::Write), that must be durable.
    Fua,
    /// Zeroes over the first row.
    Zeroes,
    /// A flush.
    Flush,
    /// Users are quiet until the array is clean and its bitmap is empty.
    Rest,
    /// The same sector of the second row is written again and again, so that the array is never clean: bits of
    /// the bitmap are cleared meanwhile.
    Trickle,
    /// A member with data of the first row fails.
    Fail,
    /// A new disk is added.
    Add,
    /// The member that failed is removed and added again.
    Return,
    /// A new disk is added and takes over from the member in the next slot.
    Replace,
    /// A check.
    Check,
    /// A repair.
    Repair,
    /// A clean stop, and a start.
    Restart,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Write,
        Self::Part,
        Self::Row,
        Self::Fua,
        Self::Zeroes,
        Self::Flush,
        Self::Rest,
        Self::Trickle,
        Self::Fail,
        Self::Add,
        Self::Return,
        Self::Replace,
        Self::Check,
        Self::Repair,
        Self::Restart,
    ];

    /// Those of the reduced search.
    pub const REDUCED: [Self; 11] = [
        Self::Write,
        Self::Row,
        Self::Fua,
        Self::Flush,
        Self::Rest,
        Self::Trickle,
        Self::Fail,
        Self::Add,
        Self::Return,
        Self::Replace,
        Self::Restart,
    ];

    /// Whether others may be done before it is answered.
    fn may_overlap(self) -> bool {
        self <= Self::Flush || self == Self::Fail
    }

    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Part => "part",
            Self::Row => "row",
            Self::Fua => "fua",
            Self::Zeroes => "zeroes",
            Self::Flush => "flush",
            Self::Rest => "rest",
            Self::Trickle => "trickle",
            Self::Fail => "fail",
            Self::Add => "add",
            Self::Return => "return",
            Self::Replace => "replace",
            Self::Check => "check",
            Self::Repair => "repair",
            Self::Restart => "restart",
        }
    }

    /// Whether it changes anything after `earlier` operations, as far as that is plain.
    fn matters_after(self, earlier: &[Step]) -> bool {
        let times = |operation| earlier.iter().filter(|step| step.operation == operation).count();
        let is_out = times(Self::Fail) > times(Self::Return);
        let last = earlier.last().map(|step| step.operation);
        match self {
            Self::Flush | Self::Rest if last.is_none() || last == Some(self) => false,
            Self::Check | Self::Repair | Self::Trickle if last == Some(self) => false,
            Self::Fail => !is_out,
            Self::Return => is_out,
            Self::Add | Self::Replace => times(self) == 0,
            _ => true,
        }
    }
}

/// One operation, and whether the next begins before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// What is done.
    pub operation: Operation,
    /// The next does not wait for it.
    pub overlaps: bool,
}

/// Operations, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub Vec<Step>);

impl Sequence {
    /// All sequences of `length` operations of `alphabet`, but those of which one operation plainly does
    /// nothing. With `overlapping` requests may be under way when the next operation begins.
    pub fn all(length: usize, alphabet: &[Operation], overlapping: bool) -> Vec<Self> {
        let mut all = vec![Self::default()];
        for _ in 0..length {
            all = all.iter().flat_map(|before| before.longer(alphabet, overlapping)).collect();
        }
        all
    }

    fn longer(&self, alphabet: &[Operation], overlapping: bool) -> Vec<Self> {
        let mut longer = Vec::new();
        for &operation in alphabet.iter().filter(|next| next.matters_after(&self.0)) {
            longer.push(self.with(operation));
            let overlaps = overlapping
                && !matches!(operation, Operation::Rest | Operation::Trickle | Operation::Restart)
                && self.0.last().is_some_and(|last| last.operation.may_overlap());
            if overlaps {
                let mut before = self.clone();
                before.0.iter_mut().rev().take(1).for_each(|last| last.overlaps = true);
                longer.push(before.with(operation));
            }
        }
        longer
    }

    fn with(&self, operation: Operation) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step { operation, overlaps: false });
        Self(steps)
    }
}

impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            let mark = if step.overlaps { "+" } else { "," };
            let mark = if index + 1 == self.0.len() { "" } else { mark };
            write!(f, "{}{mark}", step.operation.name())?;
        }
        Ok(())
    }
}

impl FromStr for Sequence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let steps = text.split_inclusive([',', '+']).map(|part| {
            let name = part.trim_end_matches([',', '+']);
            let found = Operation::ALL.into_iter().find(|operation| operation.name() == name);
            let operation = found.ok_or_else(|| {
                format!("no operation {name:?}: {}", Operation::ALL.map(Operation::name).join(", "))
            })?;
            Ok(Step { operation, overlaps: part.ends_with('+') })
        });
        steps.collect::<Result<_, String>>().map(Self)
    }
}
