//! The room in which an interpreter lives: every byte of it, and where each piece lies.
//!
//! Lua 5.1 orders a table whose keys are tables or functions by their addresses, so addresses must not differ between nodes. Two things make them
//! a function of the script alone:
//!
//! * A1: the room begins at a multiple of 4 GiB. Lua hashes the lower 32 bits of an address: they are the offset in the room.
//! * A2: where a piece lies depends only on the requests before it: pieces of one class are handed out from a list of freed ones, last freed
//!   first, else from the untouched end.
//!
//! Pieces are never merged: a class is at most a quarter larger than what was asked for, and a room is thrown away after each script.

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;

/// Bytes that a script may hold at a time.
pub(super) const LIVE_MAX: usize = 64 << 20;
/// Bytes of the room; more than `LIVE_MAX`, because freed pieces serve only their own class.
const ROOM: usize = 256 << 20;
const ALIGNMENT: usize = 1 << 32;
/// Up to here classes are 16 bytes apart, above there are four to a doubling.
const SMALL_MAX: usize = 1024;
const SMALL_CLASSES: usize = SMALL_MAX / 16;
const CLASSES: usize = SMALL_CLASSES + 4 * 18 + 1;
/// The end of a list. No piece begins there: the first 16 bytes are not used.
const NONE: u32 = 0;
/// Pages beyond this are given back to the system after a script that used them.
const KEEP: usize = 4 << 20;

/// See the module's description.
pub(super) struct Arena {
    base: *mut u8,
    ledger: Ledger,
    /// What the room looks like before a script: its first bytes, and the books over them.
    image: Option<(Vec<u8>, Ledger)>,
}

/// What is used and what is free.
#[derive(Clone)]
struct Ledger {
    /// Where the untouched part begins.
    end: usize,
    live: usize,
    free: [u32; CLASSES],
}

/// The class of a size, and how many bytes its pieces have.
fn class_of(size: usize) -> (usize, usize) {
    if size <= SMALL_MAX {
        let steps = size.max(1).div_ceil(16);
        return (steps - 1, steps * 16);
    }
    // 2^bits < size ≤ 2^(bits + 1), cut in four.
    let bits = (size - 1).ilog2() as usize;
    let step = 1 << (bits - 2);
    let quarter = (size - (1 << bits)).div_ceil(step);
    (SMALL_CLASSES + (bits - 10) * 4 + quarter - 1, (1 << bits) + quarter * step)
}

impl Arena {
    /// A new room. Nothing if the system has no addresses left.
    pub(super) fn new() -> Option<Arena> {
        let span = ALIGNMENT + ROOM;
        // SAFETY: new mappings of nobody else's memory, cut down to the part that is kept.
        unsafe {
            let start = mmap_anonymous(
                std::ptr::null_mut(),
                span,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
            .ok()?
            .cast::<u8>();
            let head = (start as usize).next_multiple_of(ALIGNMENT) - start as usize;
            let base = start.add(head);
            if head > 0 {
                munmap(start.cast(), head).ok()?;
            }
            let tail = span - head - ROOM;
            if tail > 0 {
                munmap(base.add(ROOM).cast(), tail).ok()?;
            }
            mprotect(base.cast(), ROOM, MprotectFlags::READ | MprotectFlags::WRITE).ok()?;
            Some(Arena { base, ledger: Ledger { end: 16, live: 0, free: [NONE; CLASSES] }, image: None })
        }
    }

    /// Remembers the room as it is, to begin from here again.
    pub(super) fn take_image(&mut self) {
        // SAFETY: everything below `end` was mapped and is ours.
        let bytes = unsafe { std::slice::from_raw_parts(self.base, self.ledger.end) }.to_vec();
        self.image = Some((bytes, self.ledger.clone()));
    }

    /// Begins again from the image. All pieces handed out since are gone.
    pub(super) fn restore(&mut self) {
        let Some((bytes, ledger)) = &self.image else { return };
        // SAFETY: the image was taken from this room, whose base has not moved.
        unsafe {
            if self.ledger.end > KEEP {
                // Only a hint: pages that stay are overwritten like others.
                let _ = madvise(
                    self.base.add(KEEP).cast::<c_void>(),
                    self.ledger.end.next_multiple_of(4096) - KEEP,
                    Advice::LinuxDontNeed,
                );
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base, bytes.len());
        }
        self.ledger = ledger.clone();
    }

    /// Bytes that are in use.
    #[cfg(test)]
    pub(super) fn live(&self) -> usize {
        self.ledger.live
    }

    /// How far from the beginning of the room a piece lies.
    pub(super) fn offset(&self, piece: *const c_void) -> usize {
        (piece as usize).wrapping_sub(self.base as usize)
    }

    /// A piece of `size` bytes, aligned to 16. Null if there is no room.
    pub(super) fn allocate(&mut self, size: usize) -> *mut u8 {
        let books = &mut self.ledger;
        if size > LIVE_MAX {
            return std::ptr::null_mut();
        }
        let (class, bytes) = class_of(size);
        if books.live + bytes > LIVE_MAX {
            return std::ptr::null_mut();
        }
        let first = books.free[class];
        let offset = if first == NONE {
            if books.end + bytes > ROOM {
                return std::ptr::null_mut();
            }
            let offset = books.end;
            books.end += bytes;
            offset
        } else {
            // SAFETY: a freed piece of this room holds the offset of the next one.
            books.free[class] = unsafe { self.base.add(first as usize).cast::<u32>().read() };
            first as usize
        };
        books.live += bytes;
        // SAFETY: `offset + bytes` is inside the room.
        unsafe { self.base.add(offset) }
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// `piece` was given out by this arena for `size` bytes, and nobody uses it any more.
    pub(super) unsafe fn free(&mut self, piece: *mut u8, size: usize) {
        let (class, bytes) = class_of(size);
        let offset = piece as usize - self.base as usize;
        // SAFETY: the piece is ours, and at least 16 bytes long.
        unsafe { piece.cast::<u32>().write(self.ledger.free[class]) };
        self.ledger.free[class] = offset as u32;
        self.ledger.live -= bytes;
    }

    /// A larger or smaller piece with the same beginning. Null if there is no room; then the old one stays.
    ///
    /// # Safety
    /// As for [`Arena::free`].
    pub(super) unsafe fn resize(&mut self, piece: *mut u8, old: usize, new: usize) -> *mut u8 {
        if class_of(old) == class_of(new) {
            return piece;
        }
        let moved = self.allocate(new);
        if !moved.is_null() {
            // SAFETY: both are pieces of at least that many bytes, and different ones.
            unsafe {
                std::ptr::copy_nonoverlapping(piece, moved, old.min(new));
                self.free(piece, old);
            }
        }
        moved
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: whoever holds the arena has nothing in it any more.
        let _ = unsafe { munmap(self.base.cast(), ROOM) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_large_enough_and_not_much_larger() {
        let mut before = (0, 16);
        for size in (1_usize..70_000).chain((70_000..LIVE_MAX).step_by(99_991)).chain([LIVE_MAX]) {
            let (class, bytes) = class_of(size);
            assert!(bytes >= size && bytes <= size + size / 4 + 16, "{size} in {bytes}");
            assert!(class < CLASSES, "{size} in class {class}");
            if size < 70_000 {
                assert!(
                    (class, bytes) == before || class == before.0 + 1 && bytes > before.1,
                    "{size}: {class}"
                );
                before = (class, bytes);
            }
        }
    }

    #[test]
    fn the_same_requests_get_the_same_places() {
        let places = [0, 1].map(|_| {
            let mut arena = Arena::new().unwrap();
            assert_eq!(arena.base as usize % ALIGNMENT, 0, "A1");
            let mut pieces: Vec<(*mut u8, usize)> = Vec::new();
            let mut random = 7_u64;
            let mut places = Vec::new();
            for _ in 0..10_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let size = (random >> 40) as usize % 5000;
                if random >> 33 & 3 == 0 && !pieces.is_empty() {
                    let (piece, size) = pieces.swap_remove((random >> 20) as usize % pieces.len());
                    unsafe { arena.free(piece, size) };
                } else {
                    let piece = arena.allocate(size);
                    places.push(arena.offset(piece.cast()));
                    pieces.push((piece, size));
                }
            }
            places
        });
        assert_eq!(places[0], places[1], "A2");
    }

    #[test]
    fn a_restored_room_is_as_it_was() {
        let mut arena = Arena::new().unwrap();
        let first = arena.allocate(100);
        unsafe { first.write(7) };
        arena.take_image();
        unsafe { first.write(8) };
        let then = arena.allocate(20 << 20);
        arena.restore();
        assert_eq!(unsafe { first.read() }, 7);
        assert_eq!(arena.allocate(20 << 20), then);
        assert!(arena.allocate(60 << 20).is_null(), "more than a script may hold");
    }
}
