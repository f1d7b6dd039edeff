//! Bugs on purpose: each drops one **Safe:** rule, so that the tests can show that they would notice.
//!
//! Only a build with the feature `planted-bugs` contains them; the shipped binary refuses to compile with it. In every other build
//! [`Config::has_bug`](crate::config::Config::has_bug) is the constant `false`.

/// Whether this build contains planted bugs.
pub const COMPILED_IN: bool = cfg!(feature = "planted-bugs");

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A safety rule to drop.
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
    /// The acceptor answers P1b without making its promise durable.
    PromiseNotDurable,
    /// The acceptor answers P2b without making the accepted value durable.
    AcceptNotDurable,
    /// A leader uses a ballot before it is durable, and so uses it again after a restart.
    BallotReused,
    /// The master counts its lease from the answer instead of the request.
    LeaseFromAnswer,
    /// The master does not shorten its lease by the drift bound.
    LeaseIgnoresDrift,
    /// A restarted acceptor forgets that it may have granted a lease.
    LeaseForgottenAtRestart,
    /// An acceptor promises to another leader although it is bound.
    LeaseIgnoredByAcceptor,
    /// An acceptor grants a lease for a ballot below its promise.
    GrantBelowPromise,
    /// A master counts an answer for a ballot that it has released.
    GrantAfterRelease,
    /// A new leader keeps the first accepted value that it hears of instead of the one with the highest ballot.
    FirstValueWins,
    /// A new leader proposes at and below the highest watermark that it saw.
    ProposeBelowWatermark,
    /// An acceptor accepts below its promise.
    AcceptBelowPromise,
    /// A view that is not established is led with a majority of the new view alone.
    OldViewSkipped,
    /// An acceptor takes a view's start entry although it misses earlier slots.
    HolesAtViewStart,
    /// A view is changed before it is established.
    ReconfigBeforeEstablished,
    /// A node takes its own accepted value as decided although it accepted it in a lower ballot than the watermark's.
    OldValueTakenAsDecided,
    /// A leader announces slots that others decided in a higher ballot as if they were decided in its own.
    WatermarkOverreach,
    /// The master announces a decision before its own replica applied it.
    AnnounceBeforeApply,
    /// The master serves reads before its own start entry is applied.
    ReadBeforeStart,
    /// The master serves reads without looking at its lease.
    ReadWithoutLease,
    /// A reader joins a read-index request that was already sent.
    JoinSentReadIndex,
    /// A local read is answered however old this node's state is.
    StaleReadUnbounded,
    /// A re-sent command runs again.
    CommandRunsTwice,
    /// A command runs although its predecessor from the same origin did not.
    CommandsOutOfOrder,
    /// Commands of an older master behind a newer one's run, at a time from before they were sent.
    LateCommandsRun,
    /// Cluster time follows a new master's wall clock.
    StampGoesBack,
    /// An acceptor reports a watermark that is not durable on its node.
    WatermarkNotDurable,
    /// The journal is compacted before the snapshot is durable.
    CompactBeforeSnapshot,
    /// A node that lost its data votes under its old id.
    WipedNodeVotes,
    /// Phase 1 forgets an accepted reconfiguration.
    ReconfigForgotten,
}
