//! The events that an operations console shows.

use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::rfc3339;

/// The text of an event: a name, an address, a reason. This is [`smol_str::SmolStr`], an immutable string that is cheap to clone.
///
/// Each console clones the events it receives, often on several threads at once. Texts of up to 23 bytes are stored in place, so
/// that a clone copies three words and touches no shared counter. Longer texts are shared through an `Arc<str>`.
///
/// ```
/// use doorbell::cluster::Text;
///
/// let peer: Text = "alpha".into();
/// assert_eq!(peer, "alpha");
/// assert_eq!(peer.clone().to_uppercase(), "ALPHA");
/// ```
pub type Text = SmolStr;

/// The number and time that [`emit`](super::ClusterEventPublisher::emit) gives each event.
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
    /// The event's number, one higher for each event. Every stream sees the events in this order. First number: 1, unless the
    /// builder sets another.
    pub cluster_seq: u64,
    /// When the event was emitted, by the publisher's clock. Only `cluster_seq` gives the order, because clocks can be set back and
    /// emitters on different threads can overtake each other. Serialized as RFC 3339 text, in UTC, to the nanosecond.
    #[serde(with = "rfc3339")]
    pub observed_at: SystemTime,
}

/// A change in a cluster.
///
/// Serialized with the variant's name in the field `type`:
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
/// Variants may be added, so a `match` needs a wildcard arm. A service can also define its own event type:
/// [`ClusterEventPublisher`](super::ClusterEventPublisher) accepts any.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClusterEvent {
    /// A peer joined the cluster.
    PeerJoined {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The peer's name.
        peer: Text,
        /// The address at which it can be reached.
        address: Text,
    },
    /// A connection to a peer was established.
    PeerConnected {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The peer's name.
        peer: Text,
    },
    /// A peer is considered gone.
    PeerDisconnected {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The peer's name.
        peer: Text,
        /// The number of other peers that confirmed that they cannot reach it either.
        confirmations: u32,
    },
    /// A peer took over a shard.
    ShardAdopted {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The shard's name.
        shard: Text,
        /// The shard's new owner.
        peer: Text,
    },
    /// A peer failed to take over a shard.
    ShardAdoptionFailed {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The shard's name.
        shard: Text,
        /// The peer that tried.
        peer: Text,
        /// Why it failed.
        reason: Text,
    },
    /// A peer decided not to take over a shard.
    ShardSkipped {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The shard's name.
        shard: Text,
        /// The peer that skipped it.
        peer: Text,
        /// Why the peer skipped it.
        reason: Text,
    },
    /// A worker connected.
    WorkerConnected {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The worker's name.
        worker: Text,
        /// The namespaces that it serves.
        namespaces: Arc<[Text]>,
    },
    /// A worker disconnected.
    WorkerDisconnected {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The worker's name.
        worker: Text,
        /// The namespaces that it served.
        namespaces: Arc<[Text]>,
    },
    /// A supervisor started.
    SupervisorStarted {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The supervisor's name.
        supervisor: Text,
    },
    /// A supervisor stopped.
    SupervisorStopped {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The supervisor's name.
        supervisor: Text,
        /// Why it stopped.
        reason: Text,
    },
    /// An event specific to one service.
    Custom {
        /// Number and time.
        meta: ClusterEventMeta,
        /// The kind of event.
        name: Text,
        /// Its data, in a format agreed between the service and its consoles.
        data: Text,
    },
}

impl ClusterEvent {
    /// Returns the event's number and time.
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
