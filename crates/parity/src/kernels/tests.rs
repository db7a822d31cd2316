//! Every kernel that this CPU has, scalar included, against the definition of P and Q taken byte by
//! byte with schoolbook arithmetic.

mod definition;
mod random;

use super::*;
use definition::Definition;
use random::{Buffer, Random};

/// Every length up to three AVX-512 vectors, and some around the sizes of real blocks.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=200).chain([255, 256, 257, 511, 512, 1025, 4096, 4100, 65_536 + 13])
}

/// Runs `check` for all kernels, for many lengths and counts of data blocks.
fn for_all(check: impl Fn(&Kernels, &mut Random, usize, usize)) {
    let mut random = Random::new();
    for kernels in Kernels::available() {
        for count in (1..=10).chain([17, 64, 254, 255]) {
            for len in lengths().filter(|len| count <= 10 || len % 50 == 0) {
                check(kernels, &mut random.at(kernels.isa(), count, len), count, len);
            }
        }
    }
}

#[test]
fn xor_is_the_sum_of_its_sources() {
    for_all(|kernels, random, count, len| {
        let data = random.blocks_with_gaps(count, len);
        let sources = views(&data);
        let mut out = random.block(len);
        let before = out.to_vec();
        let sum = Definition::of(&sources, len).p;

        kernels.xor_into(&sources, &mut out);
        assert_eq!(*out, Definition::of(&[&before, &sum], len).p, "xor_into {random}");
        kernels.xor(&sources, &mut out);
        assert_eq!(*out, sum, "xor {random}");
        out.fill(0xf0);
        kernels.xor_streaming(&sources, &mut out);
        assert_eq!(*out, sum, "xor_streaming {random}");
    });
}

#[test]
fn p_and_q_are_what_the_definition_says() {
    for_all(|kernels, random, count, len| {
        let data = random.blocks_with_gaps(count, len);
        let data = views(&data);
        let expected = Definition::of(&data, len);
        let (mut p, mut q) = (random.block(len), random.block(len));

        kernels.pq(&data, &mut p, &mut q);
        assert_eq!((&*p, &*q), expected.pq(), "pq {random}");
        q.fill(0xba);
        kernels.q(&data, &mut q);
        assert_eq!(*q, expected.q, "q {random}");
        p.fill(0xf0);
        q.fill(0xba);
        kernels.pq_streaming(&data, &mut p, &mut q);
        assert_eq!((&*p, &*q), expected.pq(), "pq_streaming {random}");
    });
}

#[test]
fn streaming_into_aligned_blocks_gives_the_same_bytes() {
    let mut random = Random::new();
    for kernels in Kernels::available() {
        for len in lengths() {
            let random = &mut random.at(kernels.isa(), 4, len);
            let data = random.blocks_with_gaps(4, len);
            let data = views(&data);
            let expected = Definition::of(&data, len);
            let (mut p, mut q) = (Buffer::aligned(len), Buffer::aligned(len));
            kernels.pq_streaming(&data, &mut p, &mut q);
            assert_eq!((&*p, &*q), expected.pq(), "pq_streaming {random}");
            p.fill(0xf0);
            kernels.xor_streaming(&data, &mut p);
            assert_eq!(*p, expected.p, "xor_streaming {random}");
        }
    }
}

#[test]
fn an_update_equals_computing_anew() {
    for_all(|kernels, random, count, len| {
        let old = random.blocks_with_gaps(count, len);
        let mut new = random.blocks_with_gaps(count, len);
        for index in 0..count {
            if random.below(2) == 0 {
                new[index].clone_from(&old[index]);
            }
        }
        let change = |index: usize| {
            let exponent = u8::try_from(index).expect("at most 255 blocks");
            Change { exponent, old: &old[index], new: &new[index] }
        };
        let changed = (0..count).filter(|&index| *old[index] != *new[index]);
        let changes: Vec<_> = changed.map(change).collect();
        let before = Definition::of(&views(&old), len);
        let after = Definition::of(&views(&new), len);
        let (mut p, mut q) = (random.copy_of(&before.p), random.copy_of(&before.q));

        kernels.update(&changes, Some(&mut p), Some(&mut q));
        assert_eq!((&*p, &*q), after.pq(), "update {random}");
        let (mut p, mut q) = (random.copy_of(&before.p), random.copy_of(&before.q));
        kernels.update(&changes, Some(&mut p), None);
        kernels.update(&changes, None, Some(&mut q));
        assert_eq!((&*p, &*q), after.pq(), "update of one alone {random}");
        kernels.update(&changes, None, None);
    });
}

#[test]
fn every_product_of_a_power_of_g_and_a_byte_is_right() {
    let every_byte: Vec<u8> = (0..=255).collect();
    for kernels in Kernels::available() {
        for exponent in 0..255 {
            let mut q = [0; 256];
            let change = Change { exponent, old: &[], new: &every_byte };
            kernels.update(&[change], None, Some(&mut q));
            let mut data: Vec<&[u8]> = vec![&[]; usize::from(exponent)];
            data.push(&every_byte);
            assert_eq!(q[..], Definition::of(&data, 256).q, "{} g^{exponent}", kernels.isa());
        }
    }
}

#[test]
fn every_pair_of_lost_members_comes_back() {
    let mut random = Random::new();
    for kernels in Kernels::available() {
        for (count, len) in (2..=8).flat_map(|count| [1, 67, 512, 777].map(|len| (count, len))) {
            let random = &mut random.at(kernels.isa(), count, len);
            let row = LossyRow::new(kernels, random, count, len);
            for x in 0..count {
                assert_eq!(row.without_p(x), row.data[x], "lost {x} and P {random}");
                assert_eq!(row.without_q(x), row.data[x], "lost {x} and Q {random}");
                for y in (0..count).filter(|&y| y != x) {
                    let expected = [&*row.data[x], &*row.data[y]];
                    assert_eq!(row.without_two([x, y]), expected, "lost {x} and {y} {random}");
                }
            }
        }
    }
}

#[test]
fn two_lost_of_255_data_blocks_come_back() {
    for kernels in Kernels::available() {
        let random = &mut Random::new().at(kernels.isa(), 255, 130);
        let row = LossyRow::new(kernels, random, 255, 130);
        for [x, y] in [[0, 254], [254, 0], [127, 128], [1, 253], [253, 254]] {
            let expected = [&*row.data[x], &*row.data[y]];
            assert_eq!(row.without_two([x, y]), expected, "lost {x} and {y} {random}");
        }
    }
}

/// The control of the recovery tests: they can tell a wrong block from the right one.
#[test]
fn what_comes_back_from_a_corrupt_parity_is_wrong() {
    for kernels in Kernels::available() {
        let random = &mut Random::new().at(kernels.isa(), 6, 512);
        let mut row = LossyRow::new(kernels, random, 6, 512);
        row.q[300] ^= 1;
        assert_ne!(row.without_p(2), row.data[2], "{random}");
        let [x, y] = row.without_two([2, 4]);
        assert!(x != *row.data[2] && y != *row.data[4], "{random}");
        assert_eq!(row.without_q(2), row.data[2], "Q is not asked {random}");
    }
}

/// The control of the comparisons: no byte of the input is ignored, in vectors or in tails.
#[test]
fn every_byte_of_the_data_counts_for_its_own_byte_of_p_and_q() {
    let len = 4 * 64 + 64 + 8 + 3;
    for kernels in Kernels::available() {
        let random = &mut Random::new().at(kernels.isa(), 3, len);
        let mut data = random.blocks(3, len);
        let before = LossyRow::parity(kernels, &views(&data), len);
        for (index, at) in (0..3).flat_map(|index| (0..len).map(move |at| (index, at))) {
            data[index][at] ^= 0x80;
            let after = LossyRow::parity(kernels, &views(&data), len);
            data[index][at] ^= 0x80;
            for (before, after) in [(&before.0, &after.0), (&before.1, &after.1)] {
                let differing: Vec<_> = (0..len).filter(|&i| before[i] != after[i]).collect();
                assert_eq!(differing, [at], "byte {at} of block {index} {random}");
            }
        }
    }
}

#[test]
#[cfg(unix)]
fn nothing_beyond_the_slices_is_touched() {
    use random::{FencedPage, PAGE};
    let mut pages: [FencedPage; 6] = std::array::from_fn(|_| FencedPage::new());
    for kernels in Kernels::available() {
        for len in lengths().filter(|&len| len <= PAGE) {
            // A byte too many on either side is a fault: flush left, then flush right.
            for start in [0, PAGE - len] {
                let [a, b, p, q, x, y] = pages.each_mut().map(|page| page.slice(start, len));
                kernels.pq_streaming(&[a, b], p, q);
                kernels.xor(&[a, p], x);
                kernels.recover_from_q(&[a, &[]], 1, q, x);
                kernels.recover_two(&[&[], &[]], [1, 0], p, q, [x, y]);
                let change = Change { exponent: 1, old: a, new: b };
                kernels.update(&[change], Some(p), Some(q));
            }
        }
    }
}

#[test]
#[should_panic(expected = "all blocks of a call have one length")]
fn blocks_of_two_lengths_are_refused() {
    kernels().xor(&[&[1; 16], &[1; 15]], &mut [0; 16]);
}

#[test]
#[should_panic(expected = "all blocks of a call have one length")]
fn an_empty_parity_is_no_block_of_zeroes() {
    kernels().recover_from_q(&[&[1; 16], &[]], 1, &[], &mut [0; 16]);
}

#[test]
#[should_panic(expected = "at most 255 data blocks")]
fn a_block_number_256_is_refused() {
    kernels().q(&[&[1; 16][..]; 256], &mut [0; 16]);
}

#[test]
#[should_panic(expected = "so it must be empty")]
fn recovering_a_block_that_is_there_is_refused() {
    kernels().recover_from_q(&[&[1; 16], &[2; 16]], 1, &[3; 16], &mut [0; 16]);
}

#[test]
#[should_panic(expected = "cannot be lost twice")]
fn one_block_cannot_be_lost_twice() {
    kernels().recover_two(&[&[]], [0, 0], &[3; 1], &[3; 1], [&mut [0], &mut [0]]);
}

#[test]
fn kernels_are_chosen_by_name_or_else_the_best() {
    let best = Kernels::available().next().map(Kernels::isa);
    assert_eq!(Kernels::choose(None).map(Kernels::isa).ok(), best);
    for kernels in Kernels::available() {
        let chosen = Kernels::choose(Some(kernels.isa().name())).map(Kernels::isa);
        assert_eq!(chosen, Ok(kernels.isa()));
        assert_eq!(Kernels::for_isa(kernels.isa()).map(Kernels::isa), Some(kernels.isa()));
    }
}

#[test]
fn kernels_that_cannot_run_here_are_refused_with_the_choice() {
    let foreign = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
    assert!(Kernels::for_isa(foreign).is_none());
    for name in [foreign.name(), "mmx", ""] {
        let error = Kernels::choose(Some(name)).expect_err("no such kernels").to_string();
        assert!(error.starts_with(&format!("MDSPACE_SIMD={name}: ")) && error.ends_with("scalar"));
    }
}

fn views(blocks: &[Buffer]) -> Vec<&[u8]> {
    blocks.iter().map(|block| &**block).collect()
}

/// A row of an array, to lose members from. Its parity is the definition's.
struct LossyRow<'a> {
    kernels: &'a Kernels,
    data: Vec<Buffer>,
    p: Vec<u8>,
    q: Vec<u8>,
}

impl<'a> LossyRow<'a> {
    fn new(kernels: &'a Kernels, random: &mut Random, count: usize, len: usize) -> Self {
        let data = random.blocks(count, len);
        let Definition { p, q } = Definition::of(&views(&data), len);
        Self { kernels, data, p, q }
    }

    fn parity(kernels: &Kernels, data: &[&[u8]], len: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut p, mut q) = (vec![0xf0; len], vec![0xba; len]);
        kernels.pq(data, &mut p, &mut q);
        (p, q)
    }

    fn survivors(&self, lost: &[usize]) -> Vec<&[u8]> {
        let mut data = views(&self.data);
        lost.iter().for_each(|&index| data[index] = &[]);
        data
    }

    fn without_p(&self, lost: usize) -> Vec<u8> {
        let mut out = vec![0xf0; self.p.len()];
        self.kernels.recover_from_q(&self.survivors(&[lost]), lost, &self.q, &mut out);
        out
    }

    fn without_q(&self, lost: usize) -> Vec<u8> {
        let mut out = self.p.clone();
        self.kernels.xor_into(&self.survivors(&[lost]), &mut out);
        out
    }

    fn without_two(&self, lost: [usize; 2]) -> [Vec<u8>; 2] {
        let mut out = [vec![0xf0; self.p.len()], vec![0xba; self.p.len()]];
        let [x, y] = &mut out;
        self.kernels.recover_two(&self.survivors(&lost), lost, &self.p, &self.q, [x, y]);
        out
    }
}
