//! The comparisons that have a target, and those that belong beside them.

use doorbell_perf::rounds::time;

/// The bound of a ratio: doorbell's time divided by the other measurement's.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// At most this ratio.
    AtMost(f64),
    /// At least this many times the deliveries in the same time.
    Deliveries(f64),
    /// No slower than the noise shows.
    NotSlower,
    /// At most this many nanoseconds.
    Within(f64),
    /// No target: a stronger form of the peer, or the peer's own figure, for comparison.
    Shown,
}

/// One comparison of two measurements.
pub(crate) struct Target {
    /// The work that is measured.
    pub(crate) work: &'static str,
    /// Doorbell's measurement, as `group/work/candidate`.
    pub(crate) doorbell: &'static str,
    /// What it is compared with.
    pub(crate) peer: &'static str,
    /// The other measurement.
    pub(crate) other: &'static str,
    bound: Bound,
}

impl Target {
    /// Whether doorbell meets the target, which took this many nanoseconds; `None` without one.
    pub(crate) fn is_met(&self, ratio: f64, doorbell: f64, noise: f64) -> Option<bool> {
        match self.bound {
            Bound::AtMost(most) => Some(ratio <= most),
            Bound::Deliveries(least) => Some(1.0 / ratio >= least),
            Bound::NotSlower => Some(ratio <= 1.0 + noise),
            Bound::Within(most) => Some(doorbell <= most),
            Bound::Shown => None,
        }
    }

    /// The ratio in the form of the target.
    pub(crate) fn show(&self, ratio: f64) -> String {
        match self.bound {
            Bound::Deliveries(_) => format!("{ratio:.3} (deliveries × {:.1})", 1.0 / ratio),
            _ if ratio < 10.0 => format!("{ratio:.2}"),
            _ => format!("{ratio:.0}"),
        }
    }

    /// The target in words.
    pub(crate) fn bound(&self) -> String {
        match self.bound {
            Bound::AtMost(most) => format!("≤ {most:.2}"),
            Bound::Deliveries(least) => format!("deliveries ≥ × {least}"),
            Bound::NotSlower => "≤ 1 + noise".to_owned(),
            Bound::Within(most) => format!("at most {}", time(most)),
            Bound::Shown => String::new(),
        }
    }
}

const fn row(
    work: &'static str,
    doorbell: &'static str,
    peer: &'static str,
    other: &'static str,
    bound: Bound,
) -> Target {
    Target {
        work,
        doorbell,
        peer,
        other,
        bound,
    }
}

use Bound::{AtMost, Deliveries, NotSlower, Shown, Within};

/// In the order of the table.
#[rustfmt::skip]
pub(crate) const TARGETS: &[Target] = &[
    row("ring: one way between two spinning threads", "hand_off/one_way_spinning/doorbell", "tokio", "hand_off/one_way_spinning/tokio", AtMost(0.40)),
    row("ring: one way between two spinning threads", "hand_off/one_way_spinning/doorbell", "photon-ring, many publishers", "hand_off/one_way_spinning/photon_mp", AtMost(1.10)),
    row("ring: one way between two spinning threads", "hand_off/one_way_spinning/doorbell", "photon-ring, one publisher", "hand_off/one_way_spinning/photon_sp", Shown),
    row("ring: one way between two yielding threads", "hand_off/one_way_yielding/doorbell", "tokio", "hand_off/one_way_yielding/tokio", Shown),
    row("ring: one way between two yielding threads", "hand_off/one_way_yielding/doorbell", "photon-ring, many publishers", "hand_off/one_way_yielding/photon_mp", Shown),
    row("ring: one way between two parked threads", "hand_off/one_way_parked/doorbell", "tokio", "hand_off/one_way_parked/tokio", NotSlower),
    row("ring: one way between two tasks on one worker", "hand_off/one_way_async_1_worker/doorbell", "tokio", "hand_off/one_way_async_1_worker/tokio", NotSlower),
    row("ring: one way between two tasks on two workers", "hand_off/one_way_async_2_workers/doorbell", "tokio", "hand_off/one_way_async_2_workers/tokio", NotSlower),
    row("ring: flat out from thread to thread, per publish", "hand_off/flat_out_publish/doorbell", "tokio", "hand_off/flat_out_publish/tokio", AtMost(0.80)),
    row("ring: flat out from thread to thread, per publish", "hand_off/flat_out_publish/doorbell", "photon-ring, many publishers", "hand_off/flat_out_publish/photon_mp", AtMost(1.00)),
    row("ring: flat out from thread to thread, per publish", "hand_off/flat_out_publish/doorbell", "photon-ring, one publisher", "hand_off/flat_out_publish/photon_sp", Shown),
    row("ring: flat out from thread to thread, per delivery", "hand_off/flat_out_delivered/doorbell", "tokio", "hand_off/flat_out_delivered/tokio", Shown),
    row("ring: flat out from thread to thread, per delivery", "hand_off/flat_out_delivered/doorbell", "photon-ring, many publishers", "hand_off/flat_out_delivered/photon_mp", Deliveries(1.0)),
    row("ring: flat out, received in batches of 64, per publish", "hand_off/flat_out_publish/doorbell_batch", "doorbell, received one by one", "hand_off/flat_out_publish/doorbell", NotSlower),
    row("ring: flat out, received in batches of 64, per delivery", "hand_off/flat_out_delivered/doorbell_batch", "doorbell, received one by one", "hand_off/flat_out_delivered/doorbell", NotSlower),
    row("ring: publish 1,000 events/s to a thread that keeps up", "hand_off/keep_up_1k_publish/doorbell", "tokio", "hand_off/keep_up_1k_publish/tokio", Shown),
    row("ring: publish 1,000 events/s to a thread that keeps up", "hand_off/keep_up_1k_publish/doorbell", "photon-ring, many publishers", "hand_off/keep_up_1k_publish/photon_mp", Shown),
    row("ring: receive 1,000 events/s, keeping up", "hand_off/keep_up_1k_receive/doorbell", "tokio", "hand_off/keep_up_1k_receive/tokio", Shown),
    row("ring: receive 1,000 events/s, keeping up", "hand_off/keep_up_1k_receive/doorbell", "photon-ring, many publishers", "hand_off/keep_up_1k_receive/photon_mp", Shown),
    row("ring: publish 100,000 events/s to a thread that keeps up", "hand_off/keep_up_100k_publish/doorbell", "tokio", "hand_off/keep_up_100k_publish/tokio", Shown),
    row("ring: publish 100,000 events/s to a thread that keeps up", "hand_off/keep_up_100k_publish/doorbell", "photon-ring, many publishers", "hand_off/keep_up_100k_publish/photon_mp", Shown),
    row("ring: receive 100,000 events/s, keeping up", "hand_off/keep_up_100k_receive/doorbell", "tokio", "hand_off/keep_up_100k_receive/tokio", Shown),
    row("ring: receive 100,000 events/s, keeping up", "hand_off/keep_up_100k_receive/doorbell", "photon-ring, many publishers", "hand_off/keep_up_100k_receive/photon_mp", Shown),
    row("ring: publish 1,000,000 events/s to a thread that keeps up", "hand_off/keep_up_1000k_publish/doorbell", "tokio", "hand_off/keep_up_1000k_publish/tokio", Shown),
    row("ring: publish 1,000,000 events/s to a thread that keeps up", "hand_off/keep_up_1000k_publish/doorbell", "photon-ring, many publishers", "hand_off/keep_up_1000k_publish/photon_mp", Shown),
    row("ring: receive 1,000,000 events/s, keeping up", "hand_off/keep_up_1000k_receive/doorbell", "tokio", "hand_off/keep_up_1000k_receive/tokio", Shown),
    row("ring: receive 1,000,000 events/s, keeping up", "hand_off/keep_up_1000k_receive/doorbell", "photon-ring, many publishers", "hand_off/keep_up_1000k_receive/photon_mp", Shown),
    row("ring: publish to 1000 waiting tasks from their own one-thread runtime", "hand_off/publish_within_1000_tasks/doorbell", "tokio", "hand_off/publish_within_1000_tasks/tokio", AtMost(1.00)),
    row("ring: publish and receive 256 bytes by value, one thread", "hand_off/value_256_bytes/doorbell", "tokio", "hand_off/value_256_bytes/tokio", Shown),
    row("ring: publish and receive 256 bytes by value, one thread", "hand_off/value_256_bytes/doorbell", "photon-ring, many publishers", "hand_off/value_256_bytes/photon_mp", Shown),
    row("ring: publish beside up to 10,000 that rest or are slow, settled", "crowd/worst_settled_10000/doorbell", "beside one", "crowd/worst_settled_10000/doorbell_beside_one", AtMost(1.50)),
    row("ring: publish beside up to 10,000 that rest or are slow, while they come to rest", "crowd/worst_publish_10000/doorbell", "beside one", "crowd/worst_publish_10000/doorbell_beside_one", Shown),
    row("ring: publish beside 100,000 that rest or are slow, settled", "crowd/worst_settled_100000/doorbell", "beside one", "crowd/worst_settled_100000/doorbell_beside_one", AtMost(3.00)),
    row("ring: publish beside 100,000 that rest or are slow, while they come to rest", "crowd/worst_publish_100000/doorbell", "beside one", "crowd/worst_publish_100000/doorbell_beside_one", Shown),
    row("ring: receive beside up to 100,000 that rest or are slow", "crowd/worst_receive/doorbell", "beside one", "crowd/worst_receive/doorbell_beside_one", AtMost(1.50)),
    row("ring: longest publish beside up to 100,000 that rest or are slow", "crowd/worst_longest/doorbell", "tokio", "crowd/worst_longest/tokio", Within(1e6)),
    row("ring: 50 healthy tasks beside 64 that have stopped, capacity 1,024", "crowd/clients_beside_64_stopped_delivered/doorbell", "tokio", "crowd/clients_beside_64_stopped_delivered/tokio", Deliveries(1.0)),
    row("ring: 50 healthy tasks beside 128 that have stopped, capacity 4,096", "crowd/clients_beside_128_stopped_delivered/doorbell", "tokio", "crowd/clients_beside_128_stopped_delivered/tokio", Deliveries(1.0)),
    row("ring: 50 healthy tasks beside 1,000 that have stopped, capacity 16,384", "crowd/clients_beside_1000_stopped_delivered/doorbell", "tokio", "crowd/clients_beside_1000_stopped_delivered/tokio", Deliveries(1.0)),
    row("ring: 50 healthy tasks beside 1,000 slow ones, capacity 1,024", "crowd/clients_beside_1000_slow_delivered/doorbell", "tokio", "crowd/clients_beside_1000_slow_delivered/tokio", Deliveries(1.0)),
    row("ring: publish with a Ref held on every slot", "crowd/references_publish/doorbell", "with one Ref held", "crowd/references_publish/doorbell_beside_one", AtMost(6.00)),
    row("ring: receive of another subscriber with a Ref held on every slot", "crowd/references_receive/doorbell", "with one Ref held", "crowd/references_receive/doorbell_beside_one", AtMost(1.50)),
    row("ring: publish, 1 idle subscriber", "publish/1_idle/doorbell", "tokio", "publish/1_idle/tokio", AtMost(0.45)),
    row("ring: publish, 64 idle subscribers", "publish/64_idle/doorbell", "tokio", "publish/64_idle/tokio", AtMost(0.45)),
    row("ring: publish and receive by value, one thread", "receive/value_u64x4/doorbell", "tokio", "receive/value_u64x4/tokio", AtMost(0.40)),
    row("ring: publish and receive an Arc by value, one thread", "receive/value_arc/doorbell", "tokio", "receive/value_arc/tokio", AtMost(0.60)),
    row("ring: publish and receive a String by value, one thread", "receive/value_string/doorbell", "tokio", "receive/value_string/tokio", Shown),
    row("ring: publish 64, receive a batch of 64 by reference", "receive/batch64_u64x4/doorbell", "tokio", "receive/batch64_u64x4/tokio", AtMost(0.33)),
    row("ring: publish_batch of 64, receive a batch of 64", "receive/publish_batch64_u64x4/doorbell", "tokio", "receive/publish_batch64_u64x4/tokio", AtMost(0.15)),
    row("ring: paced fan-out to 64 tasks, recv", "fan_out/64_tasks/doorbell", "tokio recv", "fan_out/64_tasks/tokio", Deliveries(5.0)),
    row("ring: paced fan-out to 512 tasks, recv", "fan_out/512_tasks/doorbell", "tokio recv", "fan_out/512_tasks/tokio", Deliveries(5.0)),
    row("ring: paced fan-out to 4096 tasks, recv", "fan_out/4096_tasks/doorbell", "tokio recv", "fan_out/4096_tasks/tokio", Deliveries(5.0)),
    row("ring: paced fan-out to 64 tasks, batches of 64", "fan_out/64_tasks/doorbell_batch", "tokio recv", "fan_out/64_tasks/tokio", Deliveries(14.0)),
    row("ring: paced fan-out to 512 tasks, batches of 64", "fan_out/512_tasks/doorbell_batch", "tokio recv", "fan_out/512_tasks/tokio", Deliveries(14.0)),
    row("ring: paced fan-out to 4096 tasks, batches of 64", "fan_out/4096_tasks/doorbell_batch", "tokio recv", "fan_out/4096_tasks/tokio", Deliveries(14.0)),
    row("ring: paced fan-out to 512 tasks, recv then try_recv", "fan_out/512_tasks/doorbell_drained", "tokio, recv then try_recv", "fan_out/512_tasks/tokio_drained", Shown),
    row("ring: paced fan-out to 512 tasks, batches of 64", "fan_out/512_tasks/doorbell_batch", "tokio, recv then try_recv", "fan_out/512_tasks/tokio_drained", Shown),
    row("ring: publish with 4096 parked tasks", "parked/publish_4096_tasks/doorbell", "doorbell with 1 parked", "parked/publish_1_tasks/doorbell", AtMost(3.0)),
    row("tokio: send with 4096 parked tasks", "parked/publish_4096_tasks/tokio", "tokio with 1 parked", "parked/publish_1_tasks/tokio", Shown),
    row("ring: publish until the last of 4096 parked tasks has the event", "parked/last_has_it_4096_tasks/doorbell", "tokio", "parked/last_has_it_4096_tasks/tokio", AtMost(1.0)),
    row("drop-in: one way between two spinning threads", "hand_off/one_way_spinning/drop_in", "tokio", "hand_off/one_way_spinning/tokio", AtMost(0.80)),
    row("drop-in: one way between two yielding threads", "hand_off/one_way_yielding/drop_in", "tokio", "hand_off/one_way_yielding/tokio", Shown),
    row("drop-in: one way between two parked threads", "hand_off/one_way_parked/drop_in", "tokio", "hand_off/one_way_parked/tokio", NotSlower),
    row("drop-in: one way between two tasks on one worker", "hand_off/one_way_async_1_worker/drop_in", "tokio", "hand_off/one_way_async_1_worker/tokio", NotSlower),
    row("drop-in: one way between two tasks on two workers", "hand_off/one_way_async_2_workers/drop_in", "tokio", "hand_off/one_way_async_2_workers/tokio", NotSlower),
    row("drop-in: flat out from thread to thread, per send", "hand_off/flat_out_publish/drop_in", "tokio", "hand_off/flat_out_publish/tokio", AtMost(1.00)),
    row("drop-in: flat out from thread to thread, per delivery", "hand_off/flat_out_delivered/drop_in", "tokio", "hand_off/flat_out_delivered/tokio", Shown),
    row("drop-in: send to 1000 waiting tasks from their own one-thread runtime", "hand_off/publish_within_1000_tasks/drop_in", "tokio", "hand_off/publish_within_1000_tasks/tokio", AtMost(1.00)),
    row("drop-in, cascade: send to 1000 waiting tasks from their own one-thread runtime", "hand_off/publish_within_1000_tasks/drop_in_cascade", "tokio", "hand_off/publish_within_1000_tasks/tokio", AtMost(0.10)),
    row("drop-in: send and receive 256 bytes by value, one thread", "hand_off/value_256_bytes/drop_in", "tokio", "hand_off/value_256_bytes/tokio", Shown),
    row("drop-in: send beside up to 10,000 that rest or are slow, settled", "crowd/worst_settled_10000/drop_in", "beside one", "crowd/worst_settled_10000/drop_in_beside_one", AtMost(1.50)),
    row("drop-in: send beside up to 10,000 that rest or are slow, while they come to rest", "crowd/worst_publish_10000/drop_in", "beside one", "crowd/worst_publish_10000/drop_in_beside_one", Shown),
    row("drop-in: send beside 100,000 that rest or are slow, settled", "crowd/worst_settled_100000/drop_in", "beside one", "crowd/worst_settled_100000/drop_in_beside_one", AtMost(3.00)),
    row("drop-in: send beside 100,000 that rest or are slow, while they come to rest", "crowd/worst_publish_100000/drop_in", "beside one", "crowd/worst_publish_100000/drop_in_beside_one", Shown),
    row("drop-in: receive beside up to 100,000 that rest or are slow", "crowd/worst_receive/drop_in", "beside one", "crowd/worst_receive/drop_in_beside_one", AtMost(1.50)),
    row("drop-in: longest send beside up to 100,000 that rest or are slow", "crowd/worst_longest/drop_in", "tokio", "crowd/worst_longest/tokio", Within(1e6)),
    row("drop-in: 50 healthy tasks beside 64 that have stopped, capacity 1,024", "crowd/clients_beside_64_stopped_delivered/drop_in", "tokio", "crowd/clients_beside_64_stopped_delivered/tokio", Deliveries(1.0)),
    row("drop-in: 50 healthy tasks beside 128 that have stopped, capacity 4,096", "crowd/clients_beside_128_stopped_delivered/drop_in", "tokio", "crowd/clients_beside_128_stopped_delivered/tokio", Deliveries(1.0)),
    row("drop-in: 50 healthy tasks beside 1,000 that have stopped, capacity 16,384", "crowd/clients_beside_1000_stopped_delivered/drop_in", "tokio", "crowd/clients_beside_1000_stopped_delivered/tokio", Deliveries(1.0)),
    row("drop-in: 50 healthy tasks beside 1,000 slow ones, capacity 1,024", "crowd/clients_beside_1000_slow_delivered/drop_in", "tokio", "crowd/clients_beside_1000_slow_delivered/tokio", Deliveries(1.0)),
    row("drop-in: send, 1 idle receiver", "publish/1_idle/drop_in", "tokio", "publish/1_idle/tokio", AtMost(0.60)),
    row("drop-in: send, 64 idle receivers", "publish/64_idle/drop_in", "tokio", "publish/64_idle/tokio", AtMost(0.60)),
    row("drop-in: send and receive, one thread", "receive/value_u64x4/drop_in", "tokio", "receive/value_u64x4/tokio", AtMost(0.50)),
    row("drop-in: send and receive an Arc, one thread", "receive/value_arc/drop_in", "tokio", "receive/value_arc/tokio", Shown),
    row("drop-in: send and receive a String, one thread", "receive/value_string/drop_in", "tokio", "receive/value_string/tokio", Shown),
    row("drop-in: paced fan-out to 64 tasks", "fan_out/64_tasks/drop_in", "tokio recv", "fan_out/64_tasks/tokio", Deliveries(3.0)),
    row("drop-in: paced fan-out to 512 tasks", "fan_out/512_tasks/drop_in", "tokio recv", "fan_out/512_tasks/tokio", Deliveries(3.0)),
    row("drop-in: paced fan-out to 4096 tasks", "fan_out/4096_tasks/drop_in", "tokio recv", "fan_out/4096_tasks/tokio", Deliveries(3.0)),
    row("drop-in: send to 1000 waiting tasks on two workers", "parked/publish_1000_tasks/drop_in", "tokio", "parked/publish_1000_tasks/tokio", AtMost(0.90)),
    row("drop-in, cascade: send to 1000 waiting tasks on two workers", "parked/publish_1000_tasks/drop_in_cascade", "tokio", "parked/publish_1000_tasks/tokio", Shown),
    row("drop-in: send until the last of 1000 waiting tasks has the message", "parked/last_has_it_1000_tasks/drop_in", "tokio", "parked/last_has_it_1000_tasks/tokio", Shown),
    row("drop-in: 4 publishing to 4 receiving threads, paced", "contended/4_to_4_paced/drop_in", "tokio blocking_recv", "contended/4_to_4_paced/tokio", Shown),
    row("ring: 4 publishing to 4 receiving threads, paced", "contended/4_to_4_paced/doorbell", "tokio blocking_recv", "contended/4_to_4_paced/tokio", AtMost(0.5)),
    row("ring: 4 publishing to 4 receiving threads, paced", "contended/4_to_4_paced/doorbell", "tokio try_recv + yield", "contended/4_to_4_paced/tokio_yield", Shown),
    row("ring: 4 publishing to 4 receiving threads, paced", "contended/4_to_4_paced/doorbell", "photon-ring", "contended/4_to_4_paced/photon_mp", Shown),
    row("ring: 4 publishing to 4 receiving threads, paced", "contended/4_to_4_paced/doorbell", "disruptor", "contended/4_to_4_paced/disruptor_mp", Shown),
    row("cluster: emit plain data, no console", "cluster/emit_plain_0_idle/doorbell", "counter + clock + tokio", "cluster/emit_plain_0_idle/two_step", AtMost(0.70)),
    row("cluster: emit plain data, 1 idle console", "cluster/emit_plain_1_idle/doorbell", "counter + clock + tokio", "cluster/emit_plain_1_idle/two_step", AtMost(0.70)),
    row("cluster: emit plain data, 64 idle consoles", "cluster/emit_plain_64_idle/doorbell", "counter + clock + tokio", "cluster/emit_plain_64_idle/two_step", AtMost(0.70)),
    row("cluster: emit texts, no console", "cluster/emit_texts_0_idle/doorbell", "counter + clock + tokio", "cluster/emit_texts_0_idle/two_step", AtMost(0.70)),
    row("cluster: emit texts, 1 idle console", "cluster/emit_texts_1_idle/doorbell", "counter + clock + tokio", "cluster/emit_texts_1_idle/two_step", AtMost(0.70)),
    row("cluster: emit texts, 64 idle consoles", "cluster/emit_texts_64_idle/doorbell", "counter + clock + tokio", "cluster/emit_texts_64_idle/two_step", AtMost(0.70)),
    row("cluster: 8 consoles, paced, plain data", "cluster/8_consoles_plain/doorbell", "counter + clock + tokio", "cluster/8_consoles_plain/two_step", Deliveries(3.0)),
    row("cluster: 8 consoles, paced, plain data", "cluster/8_consoles_plain/doorbell", "counter + clock + tokio, no stream", "cluster/8_consoles_plain/two_step_recv", Shown),
    row("cluster: 8 consoles, paced, texts", "cluster/8_consoles_texts/doorbell", "counter + clock + tokio", "cluster/8_consoles_texts/two_step", Deliveries(3.0)),
    row("cluster: 8 consoles, paced, texts", "cluster/8_consoles_texts/doorbell", "counter + clock + tokio, no stream", "cluster/8_consoles_texts/two_step_recv", Shown),
];
