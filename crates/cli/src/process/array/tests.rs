use std::sync::mpsc::channel;

use clap::Parser;
use mdspace_engine::lane::LaneId;

use super::*;
use crate::args::{CommandLine, Verb};

/// An array on members that only pretend.
fn array(run_dir: &RunDir) -> ServedArray {
    let words = "mdspace create data --level=1 --raid-devices=2 --assume-clean --lanes=2";
    let words = format!("{words} null:16M null:16M");
    let Verb::Create(args) = CommandLine::parse_from(words.split(' ')).verb else {
        panic!("another verb");
    };
    ServedArray::start(&Task::Create(args), run_dir).expect("an array").0
}

#[test]
fn an_order_that_the_array_does_not_answer_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let array = array(&RunDir::open_at(folder.path().to_owned()).expect("a run directory"));
    // Until something happens to it, the array says nothing to who asks for news.
    let news = || array.order_within(Action::News, Duration::from_millis(20));
    while news().is_ok() {}
    let failure = news().expect_err("nothing happens").failure("cannot do it");
    assert!(failure.is_of_silence() && failure.cure.contains("kill -KILL"), "{failure}");
    assert!(array.status().is_ok(), "other orders are carried out");
    assert_eq!(array.stop(false), Vec::<String>::new());
    assert_eq!(array.stop(true), Vec::<String>::new(), "it is stopped already");
}

/// The controller may wait for that lane, and every order for the controller.
#[test]
fn an_array_of_whose_lanes_one_stands_still_gives_no_sign_of_life() {
    let folder = tempfile::tempdir().expect("a folder");
    let array = array(&RunDir::open_at(folder.path().to_owned()).expect("a run directory"));
    let sign = || {
        let (given, sign) = channel();
        array.sign_of_life(Box::new(move || given.send(()).expect("it is waited for")));
        sign
    };
    assert!(sign().recv().is_ok());
    let (go_on, stands) = channel::<()>();
    array.with_running(|running| {
        let stand = move |_: &_, _: &_| assert!(stands.recv().is_err(), "it is dropped");
        running.lanes().run_on(LaneId(1), stand);
    });
    let given = sign();
    array.with_running(|running| running.lanes().call(LaneId(0), async move |_, _| {}));
    assert!(given.try_recv().is_err(), "lane 1 stands still");
    drop(go_on);
    assert!(given.recv().is_ok());
    array.stop(false);
}
