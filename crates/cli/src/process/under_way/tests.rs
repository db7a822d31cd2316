use super::*;

#[test]
fn a_restart_waits_for_the_changes_under_way_and_lets_none_begin() {
    let changes = UnderWay::default();
    let change = changes.begin().expect("no restart keeps it out");
    assert!(changes.keep_out(Duration::ZERO).is_none(), "one is under way");
    drop(changes.begin().expect("a restart that was refused keeps nothing out"));
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| changes.keep_out(Duration::MAX).map(Quiet::stay));
        while !changes.state().are_kept_out {
            std::thread::yield_now();
        }
        assert!(changes.begin().is_none(), "a restart waits");
        drop(change);
        assert!(restart.join().expect("it ends").is_some());
    });
    assert!(changes.begin().is_none(), "it is over");
}

#[test]
fn changes_go_on_after_a_restart_that_came_to_nothing() {
    let changes = UnderWay::default();
    let quiet = changes.keep_out(Duration::ZERO).expect("none is under way");
    assert!(changes.keep_out(Duration::ZERO).is_none(), "one restart at a time");
    assert!(changes.begin().is_none(), "not while it is written down how the array is");
    drop(quiet);
    assert!(changes.begin().is_some());
}

#[test]
fn an_end_waits_for_what_is_under_way_and_lets_nothing_begin() {
    let moves = UnderWay::default();
    let on_its_way = moves.begin().expect("nothing has ended");
    assert!(!moves.end(Duration::ZERO), "one is under way");
    assert!(moves.begin().is_none());
    std::thread::scope(|scope| {
        let end = scope.spawn(|| moves.end(Duration::MAX));
        drop(on_its_way);
        assert!(end.join().expect("it ends"));
    });
    drop(moves.keep_out(Duration::ZERO));
    assert!(moves.begin().is_none());
}
