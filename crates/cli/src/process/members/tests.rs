use std::sync::mpsc::channel;

use super::*;

/// Who opened it waits no more when that is known.
#[test]
fn what_the_array_refuses_late_is_closed_and_what_it_takes_stays_open() {
    let members = OpenMembers::in_table(MemberTable::new(), false);
    for is_taken in [true, false] {
        let purpose = Purpose::known("cannot add it");
        let opened = members.open("ram:1M", OpenMode::RUN, &Probed::default(), &purpose);
        let (id, _) = opened.expect("memory");
        let (told, waits) = channel();
        let closing = members.closing(id);
        drop(waits);
        match is_taken {
            true => closing.keep_open(),
            false => drop(told.send(closing)),
        }
        let is_open = members.all().contains(&id) && members.table().info(id).is_some();
        assert_eq!(is_open, is_taken);
    }
}
