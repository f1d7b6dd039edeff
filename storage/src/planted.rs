//! Bugs on purpose: each drops one rule of locks, waits or sessions, so that the simulator can show that it would notice.
//!
//! Only a build with the feature `planted-bugs` contains them; the shipped binary refuses to compile with it. In every other build `has` is the
//! constant `false`. The planted bug belongs to the thread: a run of the simulator is one thread, and every node of it has the bug.

/// Whether this build contains planted bugs.
pub const COMPILED_IN: bool = cfg!(feature = "planted-bugs");

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A rule to drop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug { $($(#[doc = $doc])+ $name,)+ }

        impl Bug {
            /// Every planted bug.
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)+];

            /// What it breaks, in a sentence.
            #[must_use]
            pub fn describe(self) -> &'static str {
                match self { $(Bug::$name => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

bugs! {
    /// A lock is granted although somebody holds it.
    GrantWhileHeld,
    /// The last token is not part of a snapshot.
    TokenForgotten,
    /// FLUSHALL lets tokens begin again.
    TokenFlushed,
    /// Times pass by the node's own clock instead of the log's.
    LocalClock,
    /// A hold is over a little before its time.
    CutShort,
    /// Whoever makes room serves the second in line.
    WaiterSkipped,
    /// A wait that was served stays in line, and is served again.
    ServedTwice,
    /// A newcomer takes a free lock although others wait for it.
    Overtaking,
    /// A shared request joins the shared holders although an exclusive one waits.
    SharedStarves,
    /// A wait whose time is over is served.
    LateServed,
    /// A lock whose holder's time passed is free for those in line only when somebody asks.
    ExpiryUnserved,
    /// How many wait is not part of a snapshot, so that nobody looks for them.
    WaitsForgotten,
    /// A lock-delay is not kept.
    DelayIgnored,
    /// The end of a session leaves its locks held.
    SessionKeepsLock,
    /// A heartbeat revives a session whose time is over.
    SessionRevived,
    /// A lock is given back by whoever names any token.
    AnyTokenReleases,
    /// The same owner's second request needs no second release.
    CountForgotten,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
        static LOCAL_MS: Cell<u64> = const { Cell::new(0) };
    }

    /// Plants a bug in everything that runs on this thread, or none.
    pub fn plant(bug: Option<Bug>) {
        BUG.set(bug);
    }

    /// What the clock of the node shows that runs next on this thread.
    pub fn set_local_ms(ms: u64) {
        LOCAL_MS.set(ms);
    }

    pub(crate) fn local_ms() -> u64 {
        LOCAL_MS.get()
    }

    pub(crate) fn has(bug: Bug) -> bool {
        BUG.get() == Some(bug)
    }
}

#[cfg(not(feature = "planted-bugs"))]
mod switch {
    use super::Bug;

    /// Does nothing: this build contains no bugs.
    pub const fn plant(_: Option<Bug>) {}

    /// Does nothing.
    pub const fn set_local_ms(_: u64) {}

    pub(crate) const fn local_ms() -> u64 {
        0
    }

    #[inline(always)]
    pub(crate) const fn has(_: Bug) -> bool {
        false
    }
}

pub(crate) use switch::{has, local_ms};
pub use switch::{plant, set_local_ms};
