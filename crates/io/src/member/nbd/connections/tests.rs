use std::os::unix::net::UnixStream;

use super::*;

fn socket() -> OwnedFd {
    UnixStream::pair().unwrap().0.into()
}

fn connections() -> Connections {
    Connections::new(socket())
}

#[test]
fn a_lane_gets_its_own_connection_once() {
    let connections = connections();
    assert!(!connections.lack(LaneId(0)) && connections.lack(LaneId(1)));
    connections.add(LaneId(1), Made { socket: socket(), is_told: false });
    assert!(!connections.lack(LaneId(1)));
    let taken = |lane| connections.take(LaneId(lane)).map(|made| made.is_told);
    assert_eq!([1, 0, 1, 0].map(taken), [Some(false), Some(true), None, None]);
}

#[test]
fn a_connection_that_is_proved_for_a_lane_that_has_ended_is_none_of_its_successor() {
    let (connections, lane) = (connections(), LaneId(1));
    connections.add(lane, Made { socket: socket(), is_told: false });
    assert!(!connections.end(lane), "it might not serve yet");
    assert_eq!(connections.tell(lane), None);
    assert!(connections.lack(lane), "the next lane of this number needs one");
    connections.add(lane, Made { socket: socket(), is_told: false });
    assert_eq!([connections.tell(lane), connections.tell(lane)], [Some(false), Some(true)]);
    assert!(connections.end(lane));
}

#[test]
fn nobody_needs_a_connection_to_a_member_that_is_lost() {
    let connections = connections();
    connections.take(LaneId(0));
    connections.add(LaneId(1), Made { socket: socket(), is_told: true });
    assert_eq!(connections.lose_one(), [LaneId(1)]);
    assert!(!connections.lack(LaneId(2)));
}
