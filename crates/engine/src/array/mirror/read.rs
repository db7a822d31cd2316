//! Reads of mirrors that are tasks: of several parts, or of what no member has at once.

use std::rc::Rc;

use crate::backend::{IoDone, ReadInto};
use crate::geometry::{Geometry, Piece, Slot};
use crate::lane::join_all;
use crate::memory::{Buffer, Sink};
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::super::array_lane::{ArrayLane, byte_range, sink_part};
use super::super::claims::Mode;
use super::super::read::Part;
use super::super::unread::Cause;
use super::super::view::{ArrayView, MemberView, WriteMode};
use super::choice::longest_readable;
use super::{Copies, Region, believed, copies, region_sectors, regions};

/// Who failed to read it before, and why.
type Suspect = Option<(Slot, Cause)>;

impl ArrayLane {
    /// Reads any range: each part from the member that is chosen for it, all at once; what none of
    /// them gives, under a claim.
    pub(in super::super) async fn read_mirrored(
        &self,
        sector: u64,
        sectors: u64,
        into: &Rc<dyn Sink>,
    ) -> Result<(), RequestError> {
        let (mut reads, mut hard) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first < sectors {
            let view = self.view();
            let sectors = self.next_part(&view, sector + first, sectors - first);
            let part = Part { first, sectors, array_sector: sector + first };
            first += sectors;
            match self.choose(&view, part.array_sector, sectors) {
                None => hard.push((part, None)),
                Some((piece, member)) => {
                    let into = sink_part(into, part.first, sectors);
                    let (id, read) = (member.id, self.read_piece(&view, piece, member, into));
                    reads.push(async move { (part, piece.slot, id, read.await.result) });
                }
            }
        }
        for (part, slot, member, result) in join_all(reads).await {
            if let Err(error) = result {
                hard.push((part, Some((slot, member, error))));
            }
        }
        for (part, failed) in hard {
            self.read_claimed(&part, into, failed).await?;
        }
        Ok(())
    }

    /// How much from `sector` on to read from one member.
    fn next_part(&self, view: &ArrayView, sector: u64, sectors: u64) -> u64 {
        let size = region_sectors(&view.geometry);
        let trusted = view.trusted(&(sector..sector + sectors));
        let together = match &*view.geometry {
            // The one copy that is believed may differ from region to region.
            Geometry::Raid1(_) if trusted => sectors,
            _ => sectors.min(size - sector % size),
        };
        match (self.choose(view, sector, together).is_some(), trusted) {
            (true, true) => self.worth_reading_there(view, sector, together),
            (true, false) => together,
            (false, _) => match longest_readable(view, sector, together) {
                0 => together,
                readable => readable,
            },
        }
    }

    /// Starts a read of one copy now; its end is awaited.
    fn read_piece<'a>(
        &'a self,
        view: &ArrayView,
        piece: Piece,
        member: &MemberView,
        into: ReadInto,
    ) -> impl Future<Output = IoDone> + use<'a> {
        let started = self.begin_copy(view, &piece, member);
        let io = self.read_member(member, piece.member_sector, into);
        async move {
            let done = io.await;
            self.end_copy(piece.slot, started, done.result.is_ok());
            done
        }
    }

    /// Whether the member in `slot`, which failed to read a range, is to be failed for it: the user
    /// wants it so, and another one can serve.
    pub(in super::super) fn fails_fast(&self, slot: Slot, sector: u64, sectors: u64) -> bool {
        self.with_view(|view| {
            let can_read = |piece: &Piece| {
                view.reader(piece.slot, piece.member_sector, piece.sectors).is_some()
            };
            view.member(slot).is_some_and(|member| member.failfast)
                && copies(&view.geometry, sector, sectors)
                    .iter()
                    .any(|piece| piece.slot != slot && can_read(piece))
        })
    }

    /// Reads a range under claims, copy after copy until one can be read; `suspect` failed before. A
    /// copy with unreadable sectors is mended from the one that was read, when the mode allows it.
    pub(in super::super) async fn read_copy(
        &self,
        sector: u64,
        sectors: u64,
        into: &Rc<dyn Sink>,
        out: usize,
        mode: Mode,
        suspect: Suspect,
    ) -> Result<(), RequestError> {
        let geometry = self.with_view(|view| view.geometry.clone());
        for region in regions(&geometry, sector, sectors) {
            let claims = &self.array.claims;
            let _claim = claims.acquire(region.index, region.columns.clone(), mode).await;
            let at = out + byte_range(0, region.first).end;
            self.read_region(region, into, at, mode, suspect).await?;
        }
        Ok(())
    }

    /// Reads a claimed range. Where every copy lacks something, but not the same, it is read in
    /// halves.
    async fn read_region(
        &self,
        region: Region,
        into: &Rc<dyn Sink>,
        out: usize,
        mode: Mode,
        suspect: Suspect,
    ) -> Result<(), RequestError> {
        let block = self.with_view(|view| view.block_sectors);
        let mut left = vec![(region, out)];
        while let Some((region, out)) = left.pop() {
            if self.read_whole(&region, into, out, mode, suspect).await {
                continue;
            }
            if self.with_view(|view| view.mode == WriteMode::Stopped) {
                return Err(RequestError::Stopped);
            }
            let Some((one, other)) = region.halves(block) else { return Err(RequestError::Lost) };
            let behind = out + byte_range(0, one.sectors()).end;
            left.extend([(other, behind), (one, out)]);
        }
        Ok(())
    }

    /// Reads a claimed range from the first copy that gives all of it; false when none does.
    async fn read_whole(
        &self,
        region: &Region,
        into: &Rc<dyn Sink>,
        out: usize,
        mode: Mode,
        suspect: Suspect,
    ) -> bool {
        let mut unreadable = Vec::new();
        let mut found = None;
        let range = region.sector..region.sector + region.sectors();
        // Members that are late come last, and have all the time that they need; but where copies may
        // differ the one that is believed is waited for at once.
        let trusted = self.with_view(|view| view.trusted(&range));
        for waits in if trusted { &[false, true][..] } else { &[true] } {
            for piece in self.by_preference(region, suspect) {
                if found.is_none() {
                    found = self.try_copy(region, piece, *waits, &mut unreadable).await;
                }
            }
        }
        let Some(block) = found else {
            self.report_lost_copies(&unreadable);
            return false;
        };
        self.put(into, out, &block);
        if mode == Mode::Exclusive {
            for piece in &unreadable {
                self.mend_copy(piece, &block).await;
            }
        }
        self.recycle(Some(block));
        true
    }

    /// Has a block listed on the members that could not read their copy of it, since there is no other.
    pub(in super::super) fn report_lost_copies(&self, unreadable: &[Piece]) {
        let view = self.view();
        let block = u64::from(view.block_sectors);
        for piece in unreadable.iter().filter(|piece| piece.sectors == block) {
            if let Some(member) = view.member(piece.slot) {
                let range = Ranges::of(piece.member_sector..piece.member_sector + block);
                self.array.mailbox.unreadable(member.id, &range);
            }
        }
    }

    /// Reads one copy if it can be read; with `waits` also one of a member that is late.
    async fn try_copy(
        &self,
        region: &Region,
        piece: Piece,
        waits: bool,
        unreadable: &mut Vec<Piece>,
    ) -> Option<Buffer> {
        let view = self.view();
        let member = view.member(piece.slot)?;
        let there = match waits {
            false => member.can_read(piece.member_sector, piece.sectors),
            true => member.can_wait_for(piece.member_sector, piece.sectors),
        };
        if !there || unreadable.contains(&piece) {
            return None;
        }
        let bytes = byte_range(0, piece.sectors);
        let buffer = self.lane.backend().allocate(bytes.len());
        let into = ReadInto::Buffer(buffer, bytes);
        let done = match waits {
            false => self.read_piece(&view, piece, member, into).await,
            true => self.read_patiently(member, piece.member_sector, into).await?,
        };
        let Err(error) = done.result else {
            return Some(done.buffer.expect("a finished read returns its buffer"));
        };
        self.recycle(done.buffer);
        if self.report_read(member.id, error) == Cause::Unreadable {
            match self.fails_fast(piece.slot, region.sector, region.sectors()) {
                true => self.array.mailbox.member_failed_fast(member.id, error),
                false => unreadable.push(piece),
            }
        }
        None
    }

    /// The copies in the order in which to try them: where mirrors may differ always the same first
    /// one; elsewhere one with unreadable sectors comes first, to be tried again under the claim, or
    /// last, if it is to be failed for them, or has not answered.
    fn by_preference(&self, region: &Region, suspect: Suspect) -> Copies {
        let view = self.view();
        let mut copies = believed(&view, region.sector, region.sectors());
        if view.trusted(&(region.sector..region.sector + region.sectors())) {
            let fails_fast = |slot| view.member(slot).is_some_and(|member| member.failfast);
            copies.sort_by_key(|piece| match suspect {
                Some((slot, cause)) if slot == piece.slot => match cause {
                    Cause::Unreadable if !fails_fast(slot) => 0,
                    _ => 2,
                },
                _ => 1,
            });
        }
        copies
    }

    async fn mend_copy(&self, piece: &Piece, block: &[u8]) {
        let view = self.view();
        if let Some(member) = view.member(piece.slot) {
            self.rewrite(member, piece.member_sector, block).await;
        }
    }
}
