/// One field of an on-disk structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// md's name of it.
    pub name: &'static str,
    /// Its first byte.
    pub offset: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// Declares `FIELDS` of a structure, and refuses to compile if an offset is not where the
/// compiler puts the field, or if the fields leave a gap.
macro_rules! fields_lie_at {
    ($structure:ident { $($name:ident $offset:literal $bytes:literal,)* }) => {
        /// Every field with its place, in the order on disk.
        pub const FIELDS: &[crate::Field] = &[
            $(crate::Field { name: stringify!($name), offset: $offset, bytes: $bytes },)*
        ];

        const _: () = {
            $(assert!(std::mem::offset_of!($structure, $name) == $offset);)*
            let (mut end, mut index) = (0, 0);
            while index < FIELDS.len() {
                assert!(FIELDS[index].offset == end, "a gap, or an overlap");
                end += FIELDS[index].bytes;
                index += 1;
            }
            assert!(end == std::mem::size_of::<$structure>());
        };
    };
}

pub(crate) use fields_lie_at;
