//! An array: start reading here.
//!
//! An [`Array`] is shared by all its lanes and holds what they must agree on: views, claims, intent
//! and the controller's mailbox. Each lane has an [`ArrayLane`], where requests run from start to
//! finish. The controller, a task of lane 0, is the one owner of membership: lanes report, it decides.

mod array_lane;
pub mod claims;
mod command;
mod controller;
mod intent;
mod mailbox;
mod mirror;
pub mod plan;
mod read;
mod reconstruct;
mod round;
mod settings;
mod start;
mod striped;
mod sync;
pub mod view;

use claims::Claims;
use intent::Intent;
use mailbox::Mailbox;
use settings::Settings;
use view::Views;

pub use array_lane::ArrayLane;
pub use command::{Action, Command, CommandError, Reply};
pub use settings::OutOfRange;
pub use start::{Start, StartMember};

/// One array, shared by its lanes and by whoever steers it.
pub struct Array {
    pub(crate) views: Views,
    pub(crate) claims: Claims,
    pub(crate) intent: Intent,
    pub(crate) mailbox: Mailbox,
    pub(crate) settings: Settings,
}
