use std::os::unix::net::UnixStream;

use super::*;

/// Addresses of documentation (RFC 5737).
fn at_its_handshake(clients: &mut Clients, host: u8) -> u64 {
    let who = Some(Who::Address([192, 0, 2, host].into()));
    clients.cut_off_one_without_a_place(&who, 4);
    let (peer, socket) = (host.to_string(), UnixStream::pair().expect("a pair").0.into());
    let (has_place, is_cut_off) = (false, false);
    let client = Client { peer, who, lane: 0, has_place, is_cut_off, socket };
    let number = clients.arrived;
    clients.arrived += 1;
    clients.present.insert(number, client);
    number
}

#[test]
fn an_address_whose_clients_say_nothing_keeps_no_other_out() {
    let mut clients = Clients::default();
    let is_there = |clients: &Clients, number| !clients.present[&number].is_cut_off;
    let early = at_its_handshake(&mut clients, 1);
    let many: Vec<u64> = (0..100).map(|_| at_its_handshake(&mut clients, 2)).collect();
    assert!(is_there(&clients, early), "it came first, and is one");
    let late = at_its_handshake(&mut clients, 3);
    let left: Vec<u64> = clients.without_a_place().map(|(number, _)| number).collect();
    assert_eq!(left, [early, many[98], many[99], late], "the oldest of those goes");
    at_its_handshake(&mut clients, 2);
    assert!(is_there(&clients, early) && is_there(&clients, late));

    // What they cut off together is told in a few lines, until nobody is there any more.
    assert_eq!(clients.cut_off, 99);
    let all: Vec<u64> = clients.present.keys().copied().collect();
    all.into_iter().for_each(|number| drop(clients.remove(number)));
    assert_eq!(clients.cut_off, 0);
}
