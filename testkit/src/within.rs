//! Time limits for what a task waits for.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Far above what any test needs: only a failing test waits this long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits for what must happen within [`LIMIT`].
pub async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match timeout(LIMIT, happens).await {
        Ok(happened) => happened,
        Err(_) => panic!("{what} did not happen within {LIMIT:?}"),
    }
}

/// Checks `condition` until it holds; for conditions that nothing signals.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    within(what, async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
