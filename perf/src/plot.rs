//! Draws latency distributions: a chart per setting, a line per candidate, both axes logarithmic.

use std::error::Error;
use std::path::Path;

use doorbell_perf::latencies::Latencies;
use plotters::prelude::*;

/// Charts in a row.
const COLUMNS: usize = 3;
const CHART: (u32, u32) = (420, 300);
/// The right end of the axis: one message in 100,000 is slower.
const LAST: f64 = 1e5;

/// The lowest latency that is drawn, in microseconds.
const LEAST: f64 = 0.1;

const COLOURS: [RGBColor; 3] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xd9, 0x5f, 0x02),
    RGBColor(0x4d, 0x92, 0x21),
];

/// The candidates under one setting.
pub(crate) struct Chart<'a> {
    pub(crate) title: String,
    pub(crate) lines: Vec<(&'static str, &'a Latencies)>,
}

pub(crate) fn draw(path: &Path, charts: &[Chart<'_>]) -> Result<(), Box<dyn Error>> {
    let columns = charts.len().clamp(1, COLUMNS);
    let rows = charts.len().div_ceil(columns).max(1);
    let size = (CHART.0 * columns as u32, CHART.1 * rows as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, chart) in root.split_evenly((rows, columns)).iter().zip(charts) {
        draw_one(area, chart)?;
    }
    root.present()?;
    Ok(())
}

fn draw_one(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    chart: &Chart<'_>,
) -> Result<(), Box<dyn Error>> {
    let Chart { title, lines } = chart;
    let highest = lines.iter().map(|(_, latency)| latency.max()).max();
    let lowest = lines.iter().map(|(_, latency)| latency.min()).min();
    let lowest = (lowest.unwrap_or(1) as f64 / 1e3).max(LEAST);
    let highest = (highest.unwrap_or(1) as f64 / 1e3).max(10.0 * lowest);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .margin_right(28)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d((1.0..LAST).log_scale(), (lowest..highest).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .x_label_formatter(&|slower| percentile(*slower))
        .y_label_formatter(&|microseconds| time(*microseconds))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (&(name, latency), colour) in lines.iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(curve(latency), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

/// Points (1 / share of slower messages, latency in µs), evenly spread on the logarithmic axis.
fn curve(latency: &Latencies) -> impl Iterator<Item = (f64, f64)> {
    const STEPS: u32 = 200;
    (0..=STEPS).map(move |step| {
        let slower = LAST.powf(f64::from(step) / f64::from(STEPS));
        let value = latency.quantile(1.0 - 1.0 / slower);
        (slower, (value as f64 / 1e3).max(LEAST))
    })
}

fn percentile(slower: f64) -> String {
    let percentile = 100.0 - 100.0 / slower;
    // As many nines as it takes: 90, 99, 99.9, 99.99.
    let decimals = (slower.log10() - 2.0).round().max(0.0) as usize;
    format!("{percentile:.decimals$}")
}

fn time(microseconds: f64) -> String {
    match microseconds {
        value if value < 1e3 => format!("{value} µs"),
        value if value < 1e6 => format!("{} ms", value / 1e3),
        value => format!("{} s", value / 1e6),
    }
}
