//! The latency distributions as a picture: a chart per setting, a line per channel, both axes logarithmic.

use std::error::Error;
use std::path::Path;

use hdrhistogram::Histogram;
use plotters::prelude::*;

use super::Comparison;
use super::report::subscribers;
use crate::units::count;

/// Charts beside one another.
const COLUMNS: usize = 3;
const CHART: (u32, u32) = (420, 300);
/// The right end of the axis: one message in 100,000 is slower.
const LAST: f64 = 1e5;

const COLOURS: [RGBColor; 2] = [RGBColor(0x1b, 0x6c, 0xa8), RGBColor(0xd9, 0x5f, 0x02)];

pub(crate) fn draw(path: &Path, comparisons: &[Comparison]) -> Result<(), Box<dyn Error>> {
    let columns = comparisons.len().clamp(1, COLUMNS);
    let rows = comparisons.len().div_ceil(columns).max(1);
    let size = (CHART.0 * columns as u32, CHART.1 * rows as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, comparison) in root.split_evenly((rows, columns)).iter().zip(comparisons) {
        chart(area, comparison)?;
    }
    root.present()?;
    Ok(())
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    comparison: &Comparison,
) -> Result<(), Box<dyn Error>> {
    let setting = &comparison.setting;
    let title = format!("{}, {}/s", subscribers(setting), count(setting.rate));
    let highest = comparison
        .named()
        .map(|(_, measurement)| measurement.latency.max())
        .into_iter()
        .max();
    let highest = highest.unwrap_or(1).max(1_000) as f64 / 1e3;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .margin_right(28)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d((1.0..LAST).log_scale(), (0.1..highest).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .x_label_formatter(&|slower| percentile(*slower))
        .y_label_formatter(&|microseconds| time(*microseconds))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for ((name, measurement), colour) in comparison.named().into_iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(curve(&measurement.latency), colour.stroke_width(2)))?
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
fn curve(latency: &Histogram<u64>) -> impl Iterator<Item = (f64, f64)> {
    const STEPS: u32 = 200;
    (0..=STEPS).map(|step| {
        let slower = LAST.powf(f64::from(step) / f64::from(STEPS));
        let value = latency.value_at_quantile(1.0 - 1.0 / slower);
        (slower, value.max(100) as f64 / 1e3)
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
