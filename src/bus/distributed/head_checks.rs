//! Streams whose high-water mark is queried at once, because a subscription reads their history and must also get events whose
//! notification has not arrived.

use parking_lot::Mutex;

use crate::bus::hub::StreamRef;

#[derive(Default)]
pub(super) struct HeadChecks(Mutex<Vec<StreamRef>>);

impl HeadChecks {
    pub(super) fn request(&self, stream: &StreamRef) {
        let mut requested = self.0.lock();
        if !requested.iter().any(|other| other.slot == stream.slot) {
            requested.push(stream.clone());
        }
    }

    pub(super) fn take(&self, max: usize) -> Vec<StreamRef> {
        let mut requested = self.0.lock();
        let count = requested.len().min(max);
        requested.drain(..count).collect()
    }
}
