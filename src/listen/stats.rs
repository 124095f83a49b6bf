//! Figures about a listener.

/// What a listener has done so far, from [`ListenMultiplexer::stats`](super::ListenMultiplexer::stats).
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
    /// Channels with at least one subscription now.
    pub channels: usize,
    /// Subscriptions now.
    pub subscriptions: usize,
    /// Connections that stood: the server had acknowledged every channel.
    pub connects: u64,
    /// Attempts to connect that failed.
    pub failed_connects: u64,
    /// Connections that stood and were lost.
    pub losses: u64,
    /// LISTEN statements acknowledged, one for each channel.
    pub listens: u64,
    /// UNLISTEN statements acknowledged, one for each channel.
    pub unlistens: u64,
    /// LISTEN statements that the server refused.
    pub refused_listens: u64,
    /// Heartbeats answered.
    pub heartbeats: u64,
    /// Notifications that arrived, probes not counted.
    pub notifications: u64,
    /// Of these, those of a channel that nobody subscribes to: it was given up while they were on their way.
    pub unknown_channel: u64,
    /// Notifications sent by [`ListenMultiplexer::notify`](super::ListenMultiplexer::notify).
    pub notified: u64,
    /// How often subscriptions were told that they had lagged.
    pub lags: u64,
    /// How many items they lost by it.
    pub lost_to_lag: u64,
}
