//! The events of a cluster, as an operations console needs them.

use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::rfc3339;
use super::text::Text;

/// What [`emit`](super::ClusterEventPublisher::emit) stamps on each event.
///
/// ```
/// use doorbell::cluster::ClusterEventMeta;
/// use std::time::{Duration, UNIX_EPOCH};
///
/// let meta = ClusterEventMeta {
///     cluster_seq: 7,
///     observed_at: UNIX_EPOCH + Duration::from_millis(1_500),
/// };
/// let json = serde_json::to_string(&meta).unwrap();
/// assert_eq!(json, r#"{"cluster_seq":7,"observed_at":"1970-01-01T00:00:01.500000000Z"}"#);
/// assert_eq!(serde_json::from_str::<ClusterEventMeta>(&json).unwrap(), meta);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterEventMeta {
    /// The event's number: 1 for the first, and one more for each. Also the order in which every subscriber sees the events.
    pub cluster_seq: u64,
    /// When the event was observed, by the publisher's clock. Clocks are set back, and emitters on different threads overtake
    /// each other, so only `cluster_seq` tells the order. Serialised as text by RFC 3339, in UTC, to the nanosecond.
    #[serde(with = "rfc3339")]
    pub observed_at: SystemTime,
}

/// A change in a cluster.
///
/// Serialised, the variant is the field `type`:
///
/// ```
/// use doorbell::cluster::{ClusterEvent, ClusterEventMeta};
/// use std::time::UNIX_EPOCH;
///
/// let event = ClusterEvent::PeerConnected {
///     meta: ClusterEventMeta { cluster_seq: 1, observed_at: UNIX_EPOCH },
///     peer: "alpha".into(),
/// };
/// let json = serde_json::to_value(&event).unwrap();
/// assert_eq!(json["type"], "peer_connected");
/// assert_eq!(json["meta"]["cluster_seq"], 1);
/// assert_eq!(json["peer"], "alpha");
/// assert_eq!(serde_json::from_value::<ClusterEvent>(json).unwrap(), event);
/// ```
///
/// More variants may come, so a `match` needs a last arm. A service with events of its own does not need this type at all:
/// [`ClusterEventPublisher`](super::ClusterEventPublisher) takes any.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClusterEvent {
    /// A peer has become a member of the cluster.
    PeerJoined {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The peer's name.
        peer: Text,
        /// Where it can be reached.
        address: Text,
    },
    /// A connection to a peer stands.
    PeerConnected {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The peer's name.
        peer: Text,
    },
    /// A peer is held to be gone.
    PeerDisconnected {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The peer's name.
        peer: Text,
        /// How many others have confirmed that they do not reach it either.
        confirmations: u32,
    },
    /// A peer has taken over a shard.
    ShardAdopted {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The shard's name.
        shard: Text,
        /// Its new owner.
        peer: Text,
    },
    /// A peer has tried to take over a shard, in vain.
    ShardAdoptionFailed {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The shard's name.
        shard: Text,
        /// Who has tried.
        peer: Text,
        /// Why it did not work.
        reason: Text,
    },
    /// A peer could have taken over a shard, and has left it alone.
    ShardSkipped {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The shard's name.
        shard: Text,
        /// Who has left it alone.
        peer: Text,
        /// Why.
        reason: Text,
    },
    /// A worker offers its service.
    WorkerConnected {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The worker's name.
        worker: Text,
        /// What it works for.
        namespaces: Arc<[Text]>,
    },
    /// A worker is gone.
    WorkerDisconnected {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The worker's name.
        worker: Text,
        /// What it worked for.
        namespaces: Arc<[Text]>,
    },
    /// A supervisor has begun its work.
    SupervisorStarted {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The supervisor's name.
        supervisor: Text,
    },
    /// A supervisor has ended its work.
    SupervisorStopped {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// The supervisor's name.
        supervisor: Text,
        /// Why.
        reason: Text,
    },
    /// Something that only a particular service knows of.
    Custom {
        /// Number and instant.
        meta: ClusterEventMeta,
        /// What kind of event it is.
        name: Text,
        /// The rest, in a form on which the sender and its readers agree.
        data: Text,
    },
}

impl ClusterEvent {
    /// Number and instant.
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEvent, ClusterEventPublisher};
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::new(NonZeroUsize::new(16).unwrap());
    /// let event = publisher.emit(|meta| ClusterEvent::SupervisorStarted { meta, supervisor: "main".into() });
    /// assert_eq!(event.meta().cluster_seq, 1);
    /// ```
    #[must_use]
    pub fn meta(&self) -> ClusterEventMeta {
        match self {
            Self::PeerJoined { meta, .. }
            | Self::PeerConnected { meta, .. }
            | Self::PeerDisconnected { meta, .. }
            | Self::ShardAdopted { meta, .. }
            | Self::ShardAdoptionFailed { meta, .. }
            | Self::ShardSkipped { meta, .. }
            | Self::WorkerConnected { meta, .. }
            | Self::WorkerDisconnected { meta, .. }
            | Self::SupervisorStarted { meta, .. }
            | Self::SupervisorStopped { meta, .. }
            | Self::Custom { meta, .. } => *meta,
        }
    }
}
