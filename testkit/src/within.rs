//! Time limits for tasks that wait.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Far more than any test needs, so only a failing test waits this long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits for `happens`. Panics if it takes longer than [`LIMIT`].
pub async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match timeout(LIMIT, happens).await {
        Ok(happened) => happened,
        Err(_) => panic!("{what} did not happen within {LIMIT:?}"),
    }
}

/// Polls `condition` until it holds, for conditions that nothing signals.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    within(what, async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
