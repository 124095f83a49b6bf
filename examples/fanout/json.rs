//! The report for programs.

use serde_json::{Value, json};

use crate::account::Latency;
use crate::report::{Report, latency_of};
use crate::team::Member;

pub(crate) fn render(report: &Report) -> String {
    let subscribers: Vec<Value> = report.members.iter().map(|member| subscriber(report, member)).collect();
    let published = &report.published;
    let value = json!({
        "input": report.source,
        "capacity": report.capacity,
        "rate": report.events_per_second_asked,
        "published": {
            "events": published.events,
            "bytes_read": published.bytes,
            "seconds": published.elapsed.as_secs_f64(),
            "events_per_second": report.published_per_second(),
            "late_arrivals": published.late_arrivals,
            "lines_truncated": published.oddities.truncated,
            "lines_with_invalid_utf8": published.oddities.invalid_utf8,
        },
        "delivered": {
            "events": report.deliveries(),
            "bytes": report.delivered_bytes(),
            "seconds": report.delivery_time().as_secs_f64(),
            "events_per_second": report.deliveries_per_second(),
            "latency_ns": latency(&latency_of(&report.prompt())),
        },
        "subscribers": subscribers,
        "adds_up": report.adds_up(),
        "interrupted": report.interrupted,
        "error": published.failure.as_ref().map(ToString::to_string),
    });
    format!("{value:#}\n")
}

fn subscriber(report: &Report, member: &Member) -> Value {
    let outcome = &member.outcome;
    json!({
        "kind": member.kind.to_string(),
        "number": member.number,
        "received": outcome.received(),
        "skipped": outcome.skipped(),
        "void": outcome.void(),
        "lag_events": outcome.lag_events(),
        "latency_ns": latency(outcome.latency()),
        "adds_up": report.member_adds_up(member),
    })
}

fn latency(latency: &Latency) -> Value {
    latency.percentiles().map_or(
        Value::Null,
        |[p50, p99, p999, max]| json!({ "p50": p50, "p99": p99, "p99.9": p999, "max": max }),
    )
}
