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

/// The controller has the news, and has published nothing since.
#[test]
fn what_was_made_whole_is_known_until_a_view_says_so() {
    let mailbox = Mailbox::default();
    mailbox.made_whole(&Ranges::of(8..24));
    let mail = std::mem::take(&mut mailbox.0.lock().mail);
    assert_eq!(mail.made_whole, Ranges::of(8..24));
    assert!(mailbox.was_made_whole(&(8..24)) && !mailbox.was_made_whole(&(8..25)));
    mailbox.is_in_doubt_only_in(&Ranges::of(0..16));
    assert!(mailbox.was_made_whole(&(8..16)) && !mailbox.was_made_whole(&(16..24)));
    mailbox.is_in_doubt_again(&Ranges::of(8..9));
    assert!(!mailbox.was_made_whole(&(8..9)) && mailbox.was_made_whole(&(9..16)));
}

/// Doubt in too many pieces is not ended at once. Each row that is whole stays known, until there is no room.
#[test]
fn what_was_made_whole_stays_known_where_views_go_on_to_call_it_in_doubt() {
    let mailbox = Mailbox::default();
    assert!(mailbox.stays_whole(&Ranges::of(8..9), 2));
    assert!(mailbox.stays_whole(&Ranges::of(12..13), 2));
    assert!(!mailbox.stays_whole(&Ranges::of(16..17), 2));
    assert_eq!(mailbox.whole().sectors(), 3);
}
