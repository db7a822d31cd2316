//! One event as a line.

use super::units::local_time;
use crate::events::Event;

/// Time, word, member and note.
pub(crate) fn line(event: &Event) -> String {
    let member = event.member.as_deref().map(|member| format!(" {member}")).unwrap_or_default();
    let note = event.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
    format!("{}  {}{member}{note}", local_time(event.time), event.event)
}
