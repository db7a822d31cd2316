//! Who lies: what a row's two parities, or three copies, say about a mismatch.
//!
//! A member is named only when the evidence is the same for every byte of a unit: then one lying member
//! explains all, and no other does.

use std::ops::Range;

use mdspace_parity::Change;

/// Where a member's bytes contradict those of the others, in bytes from the start of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspicion {
    pub(super) bytes: Range<usize>,
    /// Who lies; none where that cannot be told.
    pub(super) liar: Option<usize>,
}

/// Looks at mismatches unit by unit.
fn by_unit(
    length: usize,
    unit: usize,
    judge: impl Fn(Range<usize>) -> Option<Option<usize>>,
) -> Vec<Suspicion> {
    let mut found: Vec<Suspicion> = Vec::new();
    for start in (0..length).step_by(unit) {
        let bytes = start..(start + unit).min(length);
        let Some(liar) = judge(bytes.clone()) else { continue };
        match found.last_mut() {
            Some(last) if last.liar == liar && last.bytes.end == start => {
                last.bytes.end = bytes.end;
            }
            _ => found.push(Suspicion { bytes, liar }),
        }
    }
    found
}

/// A row of RAID6: its parities as members have them, and as all data would make them.
pub(super) struct TwoParities<'a> {
    pub(super) p: [&'a [u8]; 2],
    pub(super) q: [&'a [u8]; 2],
    /// The exponent of each data block, by place.
    pub(super) exponents: Vec<u8>,
}

impl TwoParities<'_> {
    /// Who lies, by place: data, then P, then Q.
    pub(super) fn suspicions(&self, unit: usize) -> Vec<Suspicion> {
        by_unit(self.p[0].len(), unit, |bytes| self.judge(&bytes))
    }

    fn judge(&self, bytes: &Range<usize>) -> Option<Option<usize>> {
        let [known_p, fresh_p] = self.p.map(|p| &p[bytes.clone()]);
        let [known_q, fresh_q] = self.q.map(|q| &q[bytes.clone()]);
        let data_count = self.exponents.len();
        match (known_p == fresh_p, known_q == fresh_q) {
            (true, true) => None,
            (false, true) => Some(Some(data_count)),
            (true, false) => Some(Some(data_count + 1)),
            (false, false) => {
                // A data block that is wrong by d changes P by d and Q by g^e d.
                let explains = |exponent: u8| {
                    let mut q = known_q.to_vec();
                    let change = Change { exponent, old: known_p, new: fresh_p };
                    mdspace_parity::kernels().update(&[change], None, Some(&mut q));
                    q == fresh_q
                };
                Some(self.exponents.iter().position(|&exponent| explains(exponent)))
            }
        }
    }
}

/// Copies of one range.
pub(super) struct Votes<'a>(pub(super) Vec<&'a [u8]>);

impl Votes<'_> {
    /// Where copies differ, and the one copy that all others outvote, by its place among them.
    pub(super) fn suspicions(&self, unit: usize) -> Vec<Suspicion> {
        by_unit(self.0[0].len(), unit, |bytes| self.judge(&bytes))
    }

    fn judge(&self, bytes: &Range<usize>) -> Option<Option<usize>> {
        let copies: Vec<&[u8]> = self.0.iter().map(|copy| &copy[bytes.clone()]).collect();
        if copies.iter().all(|copy| *copy == copies[0]) {
            return None;
        }
        let alone = |at: &usize| {
            let mut others = copies.iter().enumerate().filter(|(other, _)| other != at);
            let Some((_, first)) = others.next() else { return false };
            others.all(|(_, copy)| copy == first)
        };
        let several = copies.len() > 2;
        Some((0..copies.len()).find(|at| several && alone(at)))
    }
}

#[cfg(test)]
mod tests;
