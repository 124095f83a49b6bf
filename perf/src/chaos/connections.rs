//! Waits for connections to end.

use sqlx::{Connection as _, PgConnection};
use tokio::time::{Duration, Instant, sleep};

use super::Failure;
use crate::child::LIMIT;

/// Waits until the databases at these URLs have no connection with one of these names.
pub(super) async fn wait_until_disconnected(urls: &[String], application_names: &[&str]) -> Result<(), Failure> {
    const LEFT: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = ANY($1)";
    let limit = Instant::now() + LIMIT;
    for url in urls {
        let mut connection = PgConnection::connect(url).await?;
        loop {
            let left: i64 = sqlx::query_scalar(LEFT)
                .bind(application_names)
                .fetch_one(&mut connection)
                .await?;
            if left == 0 {
                break;
            }
            if Instant::now() > limit {
                return Err(format!("{left} connections of {application_names:?} are still open").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        connection.close().await?;
    }
    Ok(())
}
