//! What can go wrong, why, and what to do about it.

use std::io;

use mdspace_engine::array::CommandError;
use mdspace_engine::assembly::{LeftOut, Refusal};
use mdspace_engine::create::CreateError;
use mdspace_engine::request::RequestError;
use mdspace_io::{OpenError, StartError};

/// Why something was not done. Its text says what, why, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be, whatever the members are.
    #[error("{why}; {cure}")]
    Asked {
        /// What is wrong with it.
        why: String,
        /// What would be right.
        cure: String,
    },
    /// A member cannot be opened.
    #[error("a member cannot be opened: {0}{cure}", cure = cure_of_open(.0))]
    Open(#[from] OpenError),
    /// A member that would be overwritten holds something.
    #[error(
        "{member} is not empty: byte {offset_bytes} is not zero; give a new member, or say overwrite_members(true) \
         if all that it holds may be lost"
    )]
    NotEmpty {
        /// Its name.
        member: String,
        /// Where the first byte is that is not zero.
        offset_bytes: u64,
    },
    /// What lies on a member cannot be read.
    #[error("{member} cannot be read: {why}; look at the device and the kernel's log")]
    Unreadable {
        /// Its name.
        member: String,
        /// What the device said.
        why: String,
    },
    /// The array cannot be made of these members.
    #[error("the array cannot be created: {0}; {cure}", cure = cure_of_create(.0))]
    Create(#[from] CreateError),
    /// These members make no array that may start.
    #[error("the array cannot be started: {refusal}; {cure}", cure = cure_of_refusal(.refusal))]
    Refused {
        /// Why.
        refusal: Refusal,
        /// Members that could take no part, and why.
        left_out: Vec<LeftOut>,
    },
    /// The system refused threads or rings.
    #[error("the lanes cannot start: {0}; see `mdspace doctor`")]
    Lanes(#[from] StartError),
    /// Offset or length is no multiple of the array's block.
    #[error(
        "{len_bytes} bytes at {offset_bytes} are not whole blocks; offset and length must be multiples of {block_bytes}"
    )]
    Unaligned {
        /// Where it would begin.
        offset_bytes: u64,
        /// How long it would be.
        len_bytes: u64,
        /// The array's block.
        block_bytes: u32,
    },
    /// The range ends behind the array.
    #[error(
        "{len_bytes} bytes at {offset_bytes} end behind the array, which has {size_bytes} bytes; stay below \
         Array::size_bytes"
    )]
    OutOfRange {
        /// Where it would begin.
        offset_bytes: u64,
        /// How long it would be.
        len_bytes: u64,
        /// The array's size.
        size_bytes: u64,
    },
    /// The array takes no writes.
    #[error("the array takes no writes; assemble it without read_only")]
    ReadOnly,
    /// A member's file system or pool is full. No member was failed for it.
    #[error("no space is left behind a member; make room, and write again")]
    NoSpace,
    /// Too many members are gone, or too many of their sectors unreadable, for this range.
    #[error(
        "the range cannot be reached with the members that are left; stop the array, bring members back, and assemble \
         it again"
    )]
    Lost,
    /// The array was stopped, or dropped.
    #[error("the array is stopped; assemble it again")]
    Stopped,
    /// A blocking call was made on a lane's thread, which would wait for itself.
    #[error("a lane's thread must not block; await the asynchronous call there, or use Part")]
    OnLane,
    /// A task that was given to a lane has panicked. The lane goes on.
    #[error("the task on the lane has panicked; its message is on stderr")]
    Panicked,
    /// The array refused an order.
    #[error("the array refused: {}", words_of_order(.0))]
    Order(CommandError),
    /// The array does not take a setting.
    #[error("{0}")]
    Setting(String),
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::ReadOnly => Self::ReadOnly,
            RequestError::NoSpace => Self::NoSpace,
            RequestError::Lost => Self::Lost,
            RequestError::Stopped => Self::Stopped,
            RequestError::OutOfRange | RequestError::Unaligned => Self::Asked {
                why: error.to_string(),
                cure: "ask Array::size_bytes and Array::block_bytes".into(),
            },
        }
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Stopped => Self::Stopped,
            error => Self::Order(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Asked { .. } | Error::Unaligned { .. } => io::ErrorKind::InvalidInput,
            Error::OutOfRange { .. } => io::ErrorKind::UnexpectedEof,
            Error::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            Error::NoSpace => io::ErrorKind::StorageFull,
            Error::OnLane => io::ErrorKind::Deadlock,
            Error::Stopped => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Where its own words have none.
fn cure_of_open(error: &OpenError) -> &'static str {
    match error {
        OpenError::System { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            "; check the path, and make a new file as long as it is to be before"
        }
        OpenError::Name { name, .. } if name.starts_with("ram:") => {
            "; give a size of whole sectors of 512 bytes"
        }
        _ => "",
    }
}

/// Words of its own for what the command line has an option for.
fn words_of_order(error: &CommandError) -> String {
    let text = error.to_string();
    match text.split_once(" (--force") {
        Some((why, _)) => format!("{why}; bring other members back before"),
        None => text,
    }
}

fn cure_of_create(error: &CreateError) -> &'static str {
    match error {
        CreateError::Blocks { .. } => "give members whose blocks are alike",
        CreateError::Io { .. } => "look at the device and the kernel's log",
        CreateError::Placement(_) => "give larger members, or a smaller chunk or size",
        CreateError::Geometry(_) => "give another level, layout, chunk, or number of members",
        CreateError::MissingSpare | CreateError::NoUseForSpares => "leave spares out",
        CreateError::NewArray(_) => "give another level, layout, chunk, or number of members",
        CreateError::TooFewPlaces { .. }
        | CreateError::TooManyMissing { .. }
        | CreateError::DirtyDegraded => "give more members",
        CreateError::WriteBehind(_) => "leave write-behind out",
    }
}

fn cure_of_refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NoMembers => "give members of an array, or create one",
        Refusal::Missing { .. } => "give them too, or say allow_degraded(true)",
        Refusal::TooFew { .. } => "give more members of this array",
        Refusal::DirtyDegraded => {
            "give the missing members too; force(true) takes parity as it is, and what was being written at the crash \
             may come out wrong"
        }
        Refusal::WentOnElsewhere { .. } => "give the missing members too",
        Refusal::NoneOfIt { .. }
        | Refusal::DifferentArrays { .. }
        | Refusal::TwoSuperblocks { .. } => "give members of one array, and its uuid",
        Refusal::Duplicate { .. } | Refusal::OneSlot { .. } => "leave one of them out",
        Refusal::SplitBrain { .. } | Refusal::Rejected { .. } => {
            "`mdspace assemble --prefer=MEMBER` decides which half goes on"
        }
        _ => "look at the members with `mdspace examine`; docs/recovery.md helps",
    }
}

#[cfg(test)]
mod tests;
