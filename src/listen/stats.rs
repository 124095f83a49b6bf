//! Counters of a listener.

/// The counters of a listener since it was started, returned by [`ListenMultiplexer::stats`](super::ListenMultiplexer::stats).
///
/// `channels` and `subscriptions` are current numbers; all other fields only grow.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mux = doorbell::listen::ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
/// let _jobs = (mux.subscribe_lazy("jobs"), mux.subscribe_lazy("jobs"));
/// let stats = mux.stats();
/// assert_eq!((stats.channels, stats.subscriptions, stats.connects), (1, 2, 0));
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ListenStats {
    /// The number of channels that currently have at least one subscription.
    pub channels: usize,
    /// The current number of subscriptions.
    pub subscriptions: usize,
    /// The number of attempts to connect that succeeded, that is, after which the server acknowledged every channel.
    pub connects: u64,
    /// The number of attempts to connect that failed.
    pub failed_connects: u64,
    /// The number of successful connections that were lost.
    pub disconnects: u64,
    /// The number of LISTEN commands that the server acknowledged, one per channel.
    pub listens: u64,
    /// The number of UNLISTEN commands that the server acknowledged, one per channel.
    pub unlistens: u64,
    /// The number of LISTEN commands that the server refused.
    pub refused_listens: u64,
    /// The number of heartbeats that the server answered.
    pub heartbeats: u64,
    /// The number of notifications received, not counting probes.
    pub notifications_received: u64,
    /// The number of notifications received for a channel whose UNLISTEN was already due; included in `notifications_received`.
    pub notifications_unrouted: u64,
    /// The number of notifications sent by [`ListenMultiplexer::notify`](super::ListenMultiplexer::notify).
    pub notifications_sent: u64,
    /// The number of [`Lagged`](super::ListenItem::Lagged) items received by subscriptions.
    pub lags: u64,
    /// The number of items that subscriptions lost by lagging.
    pub items_skipped: u64,
}
