use crate::lanes::{LanesConfig, LocalLane};

use super::*;

fn stock() -> (LocalLane, Rc<Stock>) {
    let lane = LocalLane::new(&LanesConfig::default()).unwrap();
    let stock = lane.io().stock().clone();
    (lane, stock)
}

/// How many buffers it makes before it says that there is none to make.
fn made_ahead(stock: &Stock) -> usize {
    (0..1000).take_while(|_| stock.make_ahead()).count()
}

#[test]
fn a_size_that_is_asked_for_is_made_ahead() {
    let (_lane, stock) = stock();
    assert_eq!(made_ahead(&stock), 0, "nobody has asked for any");
    let held = stock.allocate(4096);
    assert_eq!((made_ahead(&stock), stock.kept_bytes()), (AHEAD, AHEAD * 4096));
    stock.recycle(held);
    let mut held: Vec<_> = (0..=AHEAD - LOW).map(|_| stock.allocate(4096)).collect();
    assert_eq!(made_ahead(&stock), 0, "there are enough");
    held.push(stock.allocate(4096));
    assert_eq!(made_ahead(&stock), AHEAD - LOW + 1);
}

#[test]
fn large_buffers_are_made_when_they_are_needed() {
    let (_lane, stock) = stock();
    let _held = stock.allocate(2 * AHEAD_BUFFER_BYTES);
    assert_eq!(made_ahead(&stock), 0);
}

/// What it made would be let go at once, and made again, and the lane would never sleep.
#[test]
fn a_full_stock_makes_nothing_ahead() {
    const BYTES: usize = 1 << 20;
    let (_lane, stock) = stock();
    let held: Vec<_> = (0..KEEP_BYTES / BYTES).map(|_| stock.allocate(BYTES)).collect();
    held.into_iter().for_each(|buffer| stock.recycle(buffer));
    assert_eq!(stock.kept_bytes(), KEEP_BYTES);
    let _held = stock.allocate(4096);
    assert_eq!(made_ahead(&stock), 0);
}
