//! How long to wait before the next try.

use std::time::Duration;

/// Full jitter: anywhere between nothing and a limit that doubles, so that processes that failed together do not come back together.
pub(super) struct Backoff {
    first: Duration,
    most: Duration,
    limit: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            limit: first,
        }
    }

    pub(super) fn reset(&mut self) {
        self.limit = self.first;
    }

    pub(super) async fn wait(&mut self) {
        let wait = self.limit.mul_f64(random());
        self.limit = (self.limit * 2).min(self.most);
        tokio::time::sleep(wait).await;
    }
}

/// `interval`, give or take a tenth.
pub(super) fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * random())
}

/// Between 0 and 1.
fn random() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = (crate::listen::random() >> 11) as f64 / (1_u64 << 53) as f64;
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_fraction_is_one() {
        let fractions: Vec<f64> = (0..100).map(|_| random()).collect();
        assert!(fractions.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        assert!(fractions.iter().any(|fraction| *fraction < 0.5) && fractions.iter().any(|fraction| *fraction > 0.5));
    }
}
