use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use super::super::spec::Spec;
use super::*;

fn question(way: &[u128]) -> Question {
    Question { number: 7, way: way.to_vec() }
}

fn member(name: &str) -> Uri {
    match Spec::parse(name) {
        Ok(Spec::Nbd(uri)) => uri,
        other => panic!("{other:?}"),
    }
}

/// Asks again until the answer is there.
fn answer(lineage: &Arc<Lineage>, way: &[u128]) -> Answer {
    let words = question(way).to_string();
    loop {
        match lineage.answer(&words).expect("a question") {
            Answer::Wait => thread::yield_now(),
            answer => return answer,
        }
    }
}

#[test]
fn questions_and_answers_are_read_as_they_are_written() {
    let asked = question(&[1, u128::MAX]);
    assert_eq!(asked.to_string().parse(), Ok(asked));
    let answers = [Answer::Yes, Answer::No, Answer::Wait, Answer::Unclear("b: is silent".into())];
    for answer in answers {
        assert_eq!(Answer::parse(&answer.to_string()), Some(answer));
    }
    for other in ["", "no such export", "x-mdspace:", "x-mdspace:perhaps", "x-mdspace:yes please"] {
        assert_eq!(Answer::parse(other), None, "{other:?}");
    }
    for other in ["", "data", "x-mdspace:below/", "x-mdspace:below/1", "x-mdspace:below/1/x"] {
        assert_eq!(other.parse::<Question>(), Err(()), "{other:?}");
    }
}

#[test]
fn a_reason_cannot_steer_a_terminal() {
    let hostile = format!("x-mdspace:unclear \x1b[2J\n{}", "x".repeat(4000));
    let Some(Answer::Unclear(why)) = Answer::parse(&hostile) else { panic!("it is an answer") };
    assert!(why.len() <= REASON_MAX && !why.contains(char::is_control));
}

#[test]
fn a_process_on_the_way_says_yes() {
    let lineage = Lineage::new();
    assert_eq!(answer(&lineage, &[1, lineage.process, 2]), Answer::Yes);
    assert_eq!(answer(&lineage, &[1, 2]), Answer::No, "nothing lies below it");
    assert_eq!(lineage.answer("data"), None, "the name of an export");
}

#[test]
fn a_member_is_listed_before_its_server_is_asked_and_until_it_is_closed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let uri = member(&format!("nbd+unix:///b?socket={}", socket.display()));
    let lineage = Lineage::new();
    let below = lineage.begin(&uri);
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut bytes = Vec::new();
        bytes.extend(crate::nbd_wire::INIT_MAGIC.to_be_bytes());
        bytes.extend(crate::nbd_wire::OPTION_MAGIC.to_be_bytes());
        bytes.extend([0, 1]);
        client.write_all(&bytes).expect("the greeting");
        client.read_exact(&mut [0; 4]).expect("the client's flags");
        // First it says which export the question is about.
        let mut names = ["b", QUESTION].map(|begin| {
            let mut head = [0; 20];
            client.read_exact(&mut head).expect("an option and the length of a name");
            let mut name = vec![0; usize::from(head[19]) + 2];
            client.read_exact(&mut name).expect("the name");
            name.truncate(name.len() - 2);
            assert!(name.starts_with(begin.as_bytes()), "{name:?}");
            let mut reply = crate::nbd_wire::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
            reply.extend(crate::nbd_wire::option::INFO.to_be_bytes());
            reply.extend(crate::nbd_wire::option_reply::ERR_UNKNOWN.to_be_bytes());
            reply.extend([0, 0, 0, 13]);
            reply.extend(b"x-mdspace:yes");
            client.write_all(&reply).expect("the answer");
            name
        });
        let name = std::mem::take(&mut names[1]);
        String::from_utf8(name).expect("a text")
    });
    assert_eq!(answer(&lineage, &[1]), Answer::Yes);
    let asked: Question = server.join().expect("a server").parse().expect("a question");
    assert_eq!(asked.way, [1, lineage.process], "passed on");
    // The server is gone: its socket refuses.
    assert_eq!(answer(&lineage, &[1]), Answer::No);
    // Whose socket is removed may serve those who are connected.
    std::fs::remove_file(&socket).expect("it was there");
    assert!(matches!(answer(&lineage, &[1]), Answer::Unclear(_)));
    drop(below);
    assert_eq!(answer(&lineage, &[1]), Answer::No);
    let _again = lineage.begin(&uri);
    assert!(matches!(answer(&lineage, &[1]), Answer::Unclear(_)));
}

#[test]
fn a_way_that_is_too_long_is_not_followed() {
    let lineage = Lineage::new();
    let _below = lineage.begin(&member("nbd://127.0.0.1:1/x"));
    assert!(matches!(answer(&lineage, &[1; HOPS_MAX]), Answer::Unclear(_)));
    assert!(question(&[1; HOPS_MAX]).patience() < question(&[1]).patience());
}

#[test]
fn one_yes_outweighs_a_doubt_and_a_doubt_outweighs_every_no() {
    let doubt = || Answer::Unclear("b is silent".into());
    assert_eq!(all([Answer::No, doubt(), Answer::Yes].into_iter()), Answer::Yes);
    assert_eq!(all([doubt(), Answer::No].into_iter()), doubt());
    assert_eq!(all([Answer::No, Answer::No].into_iter()), Answer::No);
}

#[test]
fn a_member_is_asked_while_a_lane_is_connected_and_its_server_knows_the_question() {
    let lineage = Lineage::new();
    let below = lineage.begin(&member("nbd+unix:///b?socket=/nowhere/at-all"));
    let is_asked = || answer(&lineage, &[1]) != Answer::No;
    assert!(is_asked(), "lanes connect later");
    below.set_in_use(false);
    assert!(!is_asked());
    below.set_in_use(true);
    assert!(is_asked(), "another lane has connected");
    below.end_here();
    assert!(!is_asked());
    below.set_in_use(true);
    assert!(!is_asked(), "a server of another kind stays one");
}
