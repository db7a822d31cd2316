//! What kind of failure one is, in a word for programs.

use serde::{Deserialize, Serialize};

/// Makes the enum, with the word and the exit code of each.
macro_rules! codes {
    ($($(#[$about:meta])* $code:ident = $word:literal, $exit:literal;)*) => {
        /// What kind of failure one is. docs/admin.md has the same table.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "String", into = "&'static str")]
        pub(crate) enum Code {
            $($(#[$about])* $code,)*
        }

        impl Code {
            /// Every one.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$code,)*];

            /// In JSON.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$code => $word,)* }
            }

            /// The exit code of the command.
            pub(crate) fn exit_code(self) -> u8 {
                match self { $(Self::$code => $exit,)* }
            }

            fn of_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$code),)* _ => None }
            }
        }
    };
}

codes! {
    /// For another reason, which the text alone says.
    #[default]
    Failed = "failed", 1;
    /// The words of the command, or of a request, cannot be what is meant.
    Usage = "usage", 2;
    /// What was waited for ended and left part of its work undone.
    Undone = "undone", 2;
    /// Members contradict each other, and nothing says which is right.
    Undecidable = "undecidable", 3;
    /// No array of this name runs.
    NoArray = "no-array", 4;
    /// The process of the array does not answer.
    NoAnswer = "no-answer", 4;
    /// It was done, and the output could not be written.
    Unsaid = "unsaid", 5;
    /// A signal ended it.
    Interrupted = "interrupted", 130;
    /// It is a multipath device, and the verb is for arrays.
    Multipath = "multipath", 1;
    /// The process is another mdspace than the command.
    OtherVersion = "other-version", 1;
    /// Something would be lost: it takes a yes.
    NeedsYes = "needs-yes", 1;
    /// Something else uses the device.
    InUse = "in-use", 1;
    /// The array is being restarted.
    Restarting = "restarting", 1;
    /// Too many members of the array are lost.
    Broken = "broken", 1;
    /// The array takes no writes.
    ReadOnly = "read-only", 1;
    /// The device is no member of the array.
    NoMember = "no-member", 1;
}

impl From<String> for Code {
    /// A word that is not known, as of a newer process, is the usual one.
    fn from(word: String) -> Self {
        Self::of_word(&word).unwrap_or_default()
    }
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        code.word()
    }
}
