//! The layouts of parity arrays, and the pattern of places that each gives a row.

use super::{GeometryError, Level, Shape};

/// A layout, in its own terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    turn: Turn,
    order: Order,
    q: Option<QPlace>,
    /// Exponents count slots, not data chunks (DDF).
    ddf: bool,
    /// The turn begins at this row's pattern.
    first: u16,
}

/// How P moves from row to row.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// From the last slot downwards.
    Left,
    /// From the first slot upwards.
    Right,
    /// Always before the data.
    First,
    /// Always after the data.
    Last,
}

/// How the data chunks follow each other.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// From slot 0 upwards, stepping over parity: md's "asymmetric".
    Restart,
    /// From the slot after parity on, wrapping round: md's "symmetric".
    Continue,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QPlace {
    AfterP,
    BeforeP,
    /// Always in the last slot, which takes no part in the turn: a RAID5 with one member added.
    LastSlot,
}

impl Rule {
    /// The rule of a shape's level and layout.
    pub(super) fn of(shape: &Shape) -> Result<Rule, GeometryError> {
        let rule = match shape.level {
            Level::Raid4 => Rule::raid5(5),
            Level::Raid5 => Rule::raid5(shape.layout),
            _ => Rule::raid6(shape.layout),
        };
        let rule =
            rule.ok_or(GeometryError::UnknownLayout { level: shape.level, layout: shape.layout })?;
        // g^255 = 1: with more places two chunks would have the same coefficient in Q.
        let slots_without_exponent = if rule.ddf { 0 } else { 2 };
        let maximum = 255 + slots_without_exponent;
        if rule.q.is_some() && shape.raid_disks > maximum {
            return Err(GeometryError::TooManyDisks {
                level: shape.level,
                raid_disks: shape.raid_disks,
                maximum,
            });
        }
        Ok(rule)
    }

    fn raid5(layout: u32) -> Option<Rule> {
        let (turn, order) = match layout {
            0 => (Turn::Left, Order::Restart),
            1 => (Turn::Right, Order::Restart),
            2 => (Turn::Left, Order::Continue),
            3 => (Turn::Right, Order::Continue),
            4 => (Turn::First, Order::Restart),
            5 => (Turn::Last, Order::Restart),
            _ => return None,
        };
        Some(Rule { turn, order, q: None, ddf: false, first: 0 })
    }

    fn raid6(layout: u32) -> Option<Rule> {
        let with_q =
            |raid5_layout, q| Rule::raid5(raid5_layout).map(|rule| Rule { q: Some(q), ..rule });
        match layout {
            0..=5 => with_q(layout, QPlace::AfterP),
            8 => with_q(1, QPlace::AfterP).map(|rule| Rule { ddf: true, ..rule }),
            9 => with_q(0, QPlace::AfterP).map(|rule| Rule { ddf: true, first: 1, ..rule }),
            10 => with_q(2, QPlace::BeforeP).map(|rule| Rule { ddf: true, ..rule }),
            16..=20 => with_q(layout - 16, QPlace::LastSlot),
            _ => None,
        }
    }

    /// The places of exponents in Q.
    pub(super) fn exponents(&self, raid_disks: u16) -> u16 {
        if self.ddf { raid_disks } else { self.data_disks(raid_disks) }
    }

    /// One pattern for each row until they repeat.
    pub(super) fn patterns(&self, raid_disks: u16) -> Vec<Pattern> {
        let period = match self.turn {
            Turn::Left | Turn::Right => self.ring(raid_disks),
            Turn::First | Turn::Last => 1,
        };
        (0..period).map(|row| self.pattern(raid_disks, (row + self.first) % period)).collect()
    }

    fn data_disks(&self, raid_disks: u16) -> u16 {
        raid_disks - 1 - u16::from(self.q.is_some())
    }

    /// The slots that take part in the turn.
    fn ring(&self, raid_disks: u16) -> u16 {
        raid_disks - u16::from(self.q == Some(QPlace::LastSlot))
    }

    fn pattern(&self, raid_disks: u16, row: u16) -> Pattern {
        let ring = self.ring(raid_disks);
        let p = match self.turn {
            Turn::Left => ring - 1 - row,
            Turn::Right => row,
            Turn::First => 0,
            Turn::Last => self.data_disks(raid_disks),
        };
        let q = self.q.map(|place| match place {
            QPlace::AfterP => (p + 1) % raid_disks,
            QPlace::BeforeP => (p + raid_disks - 1) % raid_disks,
            QPlace::LastSlot => raid_disks - 1,
        });
        let start = match (self.order, self.q) {
            (Order::Restart, _) => 0,
            (Order::Continue, Some(QPlace::AfterP)) => p + 2,
            (Order::Continue, _) => p + 1,
        };
        let is_data = |slot: &u16| *slot != p && Some(*slot) != q;
        let turned = (0..ring).map(|step| (start + step) % ring);
        let data = turned.filter(is_data).collect::<Vec<_>>();
        let exponents_from = q.map_or(0, |q| (q + 1) % raid_disks);
        let counted = (0..raid_disks).map(|step| (exponents_from + step) % raid_disks);
        let by_exponent = counted.filter(is_data).collect::<Vec<_>>();
        Pattern::new(p, q, &data, &by_exponent)
    }
}

/// The places of one row.
///
/// Every layout's data slots are two runs of consecutive slots, so two sums tell them all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    pub(super) p: u16,
    /// [`Pattern::NO_Q`] for RAID4 and RAID5.
    pub(super) q: u16,
    /// Exponent of data chunk 0; the others follow, wrapping at the number of data chunks.
    pub(super) exponent_of_first: u16,
    /// Data chunks in the first run.
    first_run: u16,
    /// slot - data index, modulo 2^16, in the first run and after it.
    shift_first: u16,
    shift_last: u16,
}

impl Pattern {
    pub(super) const NO_Q: u16 = u16::MAX;

    /// From the data slots in the order of the array's addresses, and in the order of their exponents.
    fn new(p: u16, q: Option<u16>, data: &[u16], by_exponent: &[u16]) -> Pattern {
        let jumps = |pair: &[u16]| pair[1] != pair[0] + 1;
        let first_run = data.windows(2).position(jumps).map_or(data.len(), |last| last + 1);
        let exponent_of_first = by_exponent
            .iter()
            .position(|&slot| slot == data[0])
            .expect("both orders hold all data");
        let shift_last = data.get(first_run).map_or(0, |&slot| slot.wrapping_sub(first_run as u16));
        let pattern = Pattern {
            p,
            q: q.unwrap_or(Pattern::NO_Q),
            exponent_of_first: exponent_of_first as u16,
            first_run: first_run as u16,
            shift_first: data[0],
            shift_last,
        };
        for (index, &slot) in data.iter().enumerate() {
            assert_eq!(pattern.slot_of(index as u16), slot, "data slots are two runs");
            let exponent = (index + exponent_of_first) % data.len();
            assert!(q.is_none() || by_exponent[exponent] == slot, "exponents follow the data");
        }
        pattern
    }

    #[inline]
    pub(super) fn slot_of(&self, data_index: u16) -> u16 {
        let in_first = data_index < self.first_run;
        data_index.wrapping_add(if in_first { self.shift_first } else { self.shift_last })
    }

    /// The inverse of `slot_of`, for slots that hold data.
    #[inline]
    pub(super) fn data_index_of(&self, slot: u16) -> u16 {
        let in_first = slot.wrapping_sub(self.shift_first);
        if in_first < self.first_run { in_first } else { slot.wrapping_sub(self.shift_last) }
    }
}
