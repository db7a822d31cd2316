use std::ops::Range;

use super::*;

const MEMBER: MemberId = MemberId { index: 1, generation: 0 };

fn told(news: &[BlockNews], range: Range<u64>) -> bool {
    news.len() == 1 && news[0].member == MEMBER && news[0].ranges == Ranges::of(range)
}

#[test]
fn each_piece_of_news_has_a_number_that_the_mail_reaches() {
    let mailbox = Mailbox::default();
    let first = mailbox.blocks(News::Refused, MEMBER, &Ranges::of(24..29));
    let mail = std::mem::take(&mut mailbox.0.lock().mail);
    assert!(mail.heard == first && told(&mail.refused, 24..29) && mail.tells_of_blocks());
    let second = mailbox.blocks(News::Unfilled, MEMBER, &Ranges::of(0..32));
    let third = mailbox.blocks(News::Unreadable, MEMBER, &Ranges::of(40..41));
    assert!(first < second && second < third);
    let mail = std::mem::take(&mut mailbox.0.lock().mail);
    assert!(mail.heard == third && told(&mail.unfilled, 0..32) && told(&mail.unreadable, 40..41));
}
