//! Rules by name: each is a guard in a model that a run may switch off.

use crate::{belief, connections, flush, row};

/// Declares the rules of a model: names, and what each says.
macro_rules! rules {
    ($($rule:ident: $words:literal,)*) => {
        /// The rules of this model.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Rule {
            $(#[doc = $words] $rule,)*
        }

        impl Rule {
            /// All rules, in the order in which they are told.
            pub(crate) const ALL: &[Self] = &[$(Self::$rule,)*];

            /// What the rule says.
            pub(crate) fn words(self) -> &'static str {
                match self {
                    $(Self::$rule => $words,)*
                }
            }
        }
    };
}

pub(crate) use rules;

/// Every rule: its model, its name, and what it says.
pub(crate) fn all() -> Vec<(&'static str, String, &'static str)> {
    let flush = flush::Rule::ALL.iter().map(|rule| ("flush", format!("{rule:?}"), rule.words()));
    let connections = connections::Rule::ALL.iter();
    let connections = connections.map(|r| ("connections", format!("{r:?}"), r.words()));
    let row = row::Rule::ALL.iter().map(|rule| ("row", format!("{rule:?}"), rule.words()));
    let belief = belief::Rule::ALL.iter().map(|rule| ("belief", format!("{rule:?}"), rule.words()));
    flush.chain(connections).chain(row).chain(belief).collect()
}

#[cfg(test)]
mod tests;
