use std::ops::Range;

use super::*;

const MEMBER: MemberId = MemberId { index: 1, generation: 0 };

fn told(news: &[BlockNews], range: Range<u64>) -> bool {
    news.len() == 1 && news[0].member == MEMBER && news[0].ranges == Ranges::of(range)
}

/// Or the write would wait for ever for its sectors to leave the list.
#[test]
fn a_write_ends_what_was_told_of_its_sectors_before_and_not_what_is_told_after() {
    let mailbox = Mailbox::default();
    mailbox.refused(MEMBER, &Ranges::of(24..29));
    mailbox.unreadable(MEMBER, &Ranges::of(0..40));
    mailbox.written(MEMBER, &Ranges::of(0..32));
    mailbox.refused(MEMBER, &Ranges::of(8..16));
    let mail = std::mem::take(&mut mailbox.0.lock().mail);
    assert!(told(&mail.written, 0..32));
    assert!(told(&mail.refused, 8..16));
    assert!(told(&mail.unreadable, 32..40));
}
