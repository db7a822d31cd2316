//! What tests control and name: the rules that they break, and the points at which they interfere.

/// Defines an enum of things of which each has a name and a sentence. Without the feature `controls` only
/// the engine names them.
macro_rules! named {
    ($(#[$doc:meta])* pub enum $All:ident { $($name:ident: $sentence:literal,)* }) => {
        $(#[$doc])*
        #[cfg_attr(not(feature = "controls"), expect(unreachable_pub, reason = "only tests name them"))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $All {
            $(#[doc = $sentence] $name,)*
        }

        #[cfg(feature = "controls")]
        impl $All {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// What it says.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

pub(super) use named;
