//! The operations, and strategies for random scripts of them.

use doorbell::ring::{Builder, MAX_SEQ, OnLag};
use proptest::collection::vec;
use proptest::prelude::*;

/// One operation. `which` selects a living subscriber and `by` a living publisher, modulo their number.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Publish {
        by: usize,
    },
    PublishWith {
        by: usize,
        panics: bool,
    },
    /// A closure that itself publishes and receives, while its own seq is claimed and unfinished.
    PublishAround {
        by: usize,
        inner: Vec<Inner>,
        panics: bool,
    },
    PublishBatch {
        by: usize,
        claims: usize,
        yields: usize,
        panics: bool,
    },
    AddPublisher,
    UpgradePublisher,
    DropPublisher {
        by: usize,
    },
    Subscribe(From),
    CloneSubscriber {
        which: usize,
    },
    Resubscribe {
        which: usize,
    },
    ResubscribeFrom {
        which: usize,
        from: From,
    },
    DropSubscriber {
        which: usize,
    },
    Receive {
        which: usize,
        form: Form,
    },
    /// Holds a reference while others publish.
    HoldRef {
        which: usize,
        publishes: usize,
    },
    /// Takes part of a batch, lets others publish, and takes another part.
    HoldBatch {
        which: usize,
        max: usize,
        before: usize,
        publishes: usize,
        after: usize,
    },
}

/// What happens inside a `publish_with` closure.
#[derive(Debug, Clone)]
pub(crate) enum Inner {
    Publish(usize),
    Void,
    Receive(usize),
}

/// Where a new subscriber starts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    Latest,
    Oldest,
    AfterTheBeginning,
    Behind(u64),
    Ahead(u64),
    Never,
}

/// Every way to receive.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Try,
    TrySeq,
    Poll,
    Future,
    FutureSeq,
    Blocking,
    Timeout,
    Deadline,
    TryRef,
    FutureRef,
    BlockingRef,
    TryBatch { max: usize, take: usize },
    FutureBatch { max: usize, take: usize },
    BlockingBatch { max: usize, take: usize },
    TryIter(usize),
    Iter(usize),
    Lossy,
    Stream(usize),
}

/// A channel to create and the operations to run on it.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) capacity: usize,
    pub(crate) first_seq: u64,
    pub(crate) on_lag: Option<OnLag>,
    pub(crate) ops: Vec<Op>,
}

impl Script {
    pub(crate) fn builder(&self) -> Builder {
        let builder = Builder::new(self.capacity).first_seq(self.first_seq);
        match self.on_lag {
            Some(on_lag) => builder.on_lag(on_lag),
            None => builder,
        }
    }

    /// The effective policy. Default: headroom of an eighth of the capacity.
    pub(crate) fn policy(&self) -> OnLag {
        self.on_lag.unwrap_or(OnLag::Headroom(self.capacity as u64 / 8))
    }
}

fn form() -> impl Strategy<Value = Form> {
    let span = || (prop_oneof![1usize..6, 0usize..100], prop_oneof![0usize..6, 0usize..100]);
    prop_oneof![
        4 => Just(Form::Try),
        2 => Just(Form::TrySeq),
        1 => Just(Form::Poll),
        1 => Just(Form::Future),
        1 => Just(Form::FutureSeq),
        1 => Just(Form::Blocking),
        1 => Just(Form::Timeout),
        1 => Just(Form::Deadline),
        2 => Just(Form::TryRef),
        1 => Just(Form::FutureRef),
        1 => Just(Form::BlockingRef),
        4 => span().prop_map(|(max, take)| Form::TryBatch { max, take }),
        1 => span().prop_map(|(max, take)| Form::FutureBatch { max, take }),
        1 => span().prop_map(|(max, take)| Form::BlockingBatch { max, take }),
        1 => (0usize..20).prop_map(Form::TryIter),
        1 => (0usize..20).prop_map(Form::Iter),
        1 => Just(Form::Lossy),
        1 => (0usize..20).prop_map(Form::Stream),
    ]
}

fn from() -> impl Strategy<Value = From> {
    prop_oneof![
        Just(From::Latest),
        Just(From::Oldest),
        Just(From::AfterTheBeginning),
        (0u64..40).prop_map(From::Behind),
        (0u64..6).prop_map(From::Ahead),
        Just(From::Never),
    ]
}

fn inner() -> impl Strategy<Value = Inner> {
    prop_oneof![
        2 => (0usize..5).prop_map(Inner::Publish),
        1 => (0usize..40).prop_map(Inner::Publish),
        1 => Just(Inner::Void),
        3 => (0usize..8).prop_map(Inner::Receive),
    ]
}

fn op(one_publisher: bool) -> impl Strategy<Value = Op> {
    let handle = || 0usize..8;
    let (add, upgrade) = if one_publisher {
        (Op::Publish { by: 0 }, Op::Publish { by: 0 })
    } else {
        (Op::AddPublisher, Op::UpgradePublisher)
    };
    prop_oneof![
        12 => handle().prop_map(|by| Op::Publish { by }),
        2 => (handle(), any::<bool>()).prop_map(|(by, panics)| Op::PublishWith { by, panics }),
        4 => (handle(), vec(inner(), 0..6), prop::bool::weighted(0.2))
            .prop_map(|(by, inner, panics)| Op::PublishAround { by, inner, panics }),
        4 => (handle(), prop_oneof![0usize..8, 0usize..80], prop_oneof![0usize..8, 0usize..80], prop::bool::weighted(0.2))
            .prop_map(|(by, claims, yields, panics)| Op::PublishBatch { by, claims, yields, panics }),
        1 => Just(add),
        1 => Just(upgrade),
        1 => handle().prop_map(|by| Op::DropPublisher { by }),
        2 => from().prop_map(Op::Subscribe),
        1 => handle().prop_map(|which| Op::CloneSubscriber { which }),
        1 => handle().prop_map(|which| Op::Resubscribe { which }),
        1 => (handle(), from()).prop_map(|(which, from)| Op::ResubscribeFrom { which, from }),
        2 => handle().prop_map(|which| Op::DropSubscriber { which }),
        18 => (handle(), form()).prop_map(|(which, form)| Op::Receive { which, form }),
        2 => (handle(), 0usize..60).prop_map(|(which, publishes)| Op::HoldRef { which, publishes }),
        3 => (handle(), 1usize..80, 0usize..6, 0usize..60, 0usize..6)
            .prop_map(|(which, max, before, publishes, after)| Op::HoldBatch { which, max, before, publishes, after }),
    ]
}

/// First seqs at the beginning, near multiples of powers of two and of the capacity, and as near to `MAX_SEQ` as the script allows.
fn first_seq(capacity: usize) -> impl Strategy<Value = u64> {
    let capacity = capacity as u64;
    prop_oneof![
        3 => Just(1u64),
        1 => 2u64..200,
        2 => (3u32..62, 0u64..40).prop_map(|(bits, back)| (1u64 << bits).saturating_sub(back).max(1)),
        2 => (28u32..34, 1u64..5, 0u64..40)
            .prop_map(move |(bits, laps, back)| (1u64 << bits) * capacity * laps - back),
        2 => (0u64..40).prop_map(|back| MAX_SEQ - 40_000 - back),
        2 => (0u64..400).prop_map(|back| MAX_SEQ - back),
    ]
}

/// Scripts for the channel with one publisher or with many.
pub(crate) fn script(one_publisher: bool) -> impl Strategy<Value = Script> {
    prop_oneof![5 => 1usize..6, 3 => 6usize..20, 1 => Just(64usize), 1 => 60usize..140]
        .prop_flat_map(move |capacity| {
            let on_lag = prop_oneof![
                Just(None),
                Just(Some(OnLag::Oldest)),
                Just(Some(OnLag::Latest)),
                (0u64..12).prop_map(|spare| Some(OnLag::Headroom(spare))),
                Just(Some(OnLag::Headroom(u64::MAX))),
            ];
            (
                Just(capacity),
                first_seq(capacity),
                on_lag,
                vec(op(one_publisher), 1..90),
            )
        })
        .prop_map(|(capacity, first_seq, on_lag, ops)| Script {
            capacity,
            first_seq,
            on_lag,
            ops,
        })
}
