//! Plots as SVG, readable on light and dark pages: nothing behind them, and colours of middle lightness.
#![expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "places in a plot: a few hundred")]

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// A plot of panels side by side.
pub(crate) struct Plot {
    pub(crate) panels: Vec<Panel>,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) scale: Scale,
}

/// How values are laid out from bottom to top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Logarithms, in whole decades.
    Decades,
    /// The values as they are, from zero.
    FromZero,
}

/// Lines over the same ticks.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) ticks: Vec<String>,
    pub(crate) lines: Vec<Line>,
    /// Values rise from left to right: the names find room where there are none.
    pub(crate) rises: bool,
}

/// A value for each tick, as far as there are values.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Lines of one colour belong together.
    pub(crate) colour: usize,
    pub(crate) look: Look,
    pub(crate) values: Vec<Option<f64>>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Look {
    /// Filled circles.
    Measured,
    /// Filled circles on a line.
    Joined,
    /// A line without marks.
    Computed,
    /// Crosses.
    Published,
}

/// Contrast of at least 3 to 1 with white and with the darkest grey that pages have.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x2f, 0x81, 0xf7),
    RGBColor(0xdb, 0x6d, 0x28),
    RGBColor(0x2e, 0xa0, 0x43),
    RGBColor(0xbf, 0x4b, 0x8a),
    RGBColor(0x8e, 0x7c, 0xc3),
];
/// Axes and text.
const GREY: RGBColor = RGBColor(0x80, 0x80, 0x80);
const FAINT: RGBAColor = RGBAColor(0x80, 0x80, 0x80, 0.25);
const PANEL: (u32, u32) = (440, 380);
const FONT: &str = "sans-serif";
const TEXT: i32 = 13;
const MARK: i32 = 4;
/// The room of a scale from zero above the largest value, for the names.
const HEADROOM: f64 = 1.35;
/// The room of names in a panel, at most: its width, and for each its height.
const NAMES_WIDTH: f64 = 0.4;
const NAME_HEIGHT: f64 = 0.06;
/// When no value is below, the scale does not begin at 1.
const FAR_ABOVE_ONE: f64 = 20.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Plot {
    /// Draws the plot.
    pub(crate) fn to_svg(&self) -> Result<String> {
        let mut svg = String::new();
        let size = (PANEL.0 * self.panels.len() as u32, PANEL.1);
        {
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let areas = root.split_evenly((1, self.panels.len()));
            for (panel, area) in self.panels.iter().zip(&areas) {
                self.draw(panel, area).map_err(|error| anyhow!("cannot draw {:?}: {error}", panel.title))?;
            }
        }
        Ok(svg)
    }

    fn draw(&self, panel: &Panel, area: &Area) -> Result<(), Box<dyn std::error::Error>> {
        match self.scale {
            Scale::Decades => self.draw_over(self.y_range(panel).log_scale(), panel, area),
            Scale::FromZero => self.draw_over(self.y_range(panel), panel, area),
        }
    }

    fn draw_over<Y>(&self, y_range: Y, panel: &Panel, area: &Area) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let text = |size: i32| (FONT, size).into_font().color(&GREY);
        let x_range = -0.4..panel.ticks.len() as f64 - 0.6;
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, text(TEXT + 2))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(x_range, y_range)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(GREY)
            .label_style(text(TEXT))
            .axis_desc_style(text(TEXT))
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_labels(0)
            .y_label_formatter(&|value| ((value * 1e6).round() / 1e6).to_string())
            .draw()?;
        for (place, tick) in panel.ticks.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(place as f64, self.y_range(panel).start));
            let (left, top) = area.get_base_pixel();
            area.draw_text(tick, &text(TEXT), (x - left - 3 * tick.len() as i32, y - top + 6))?;
        }
        for line in &panel.lines {
            let colour = COLOURS[line.colour % COLOURS.len()];
            let points: Vec<(f64, f64)> =
                line.values.iter().enumerate().filter_map(|(x, value)| Some((x as f64, (*value)?))).collect();
            let drawn = match line.look {
                Look::Computed => chart.draw_series(LineSeries::new(points, colour.stroke_width(1)))?,
                Look::Joined => {
                    chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(1)))?;
                    chart.draw_series(points.into_iter().map(|at| Circle::new(at, MARK, colour.filled())))?
                }
                Look::Measured => {
                    chart.draw_series(points.into_iter().map(|at| Circle::new(at, MARK, colour.filled())))?
                }
                Look::Published => {
                    chart.draw_series(points.into_iter().map(|at| Cross::new(at, MARK, colour.stroke_width(2))))?
                }
            };
            if !line.name.is_empty() {
                let drawn = drawn.label(&line.name);
                match line.look {
                    Look::Published => {
                        drawn.legend(move |(x, y)| Cross::new((x + 8, y), MARK, colour.stroke_width(2)));
                    }
                    _ => {
                        drawn.legend(move |(x, y)| Circle::new((x + 8, y), MARK, colour.filled()));
                    }
                }
            }
        }
        let style = text(TEXT - 1);
        chart
            .configure_series_labels()
            .position(self.place_of_names(panel))
            .label_font(style)
            .border_style(FAINT)
            .draw()?;
        Ok(())
    }

    /// The corner for the names: the lower one that the panel asks for, unless values lie there and fewer in another.
    fn place_of_names(&self, panel: &Panel) -> SeriesLabelPosition {
        use SeriesLabelPosition::{LowerLeft, LowerRight, UpperLeft, UpperRight};
        if self.scale == Scale::FromZero {
            return if panel.rises { UpperLeft } else { UpperRight };
        }
        let names = panel.lines.iter().filter(|line| !line.name.is_empty()).count();
        let (width, height) = (NAMES_WIDTH, NAME_HEIGHT * (names + 1) as f64);
        let range = self.y_range(panel);
        let decades = (range.end / range.start).log10();
        let last = (panel.ticks.len() as f64 - 1.0).max(1.0);
        let places = panel
            .lines
            .iter()
            .flat_map(|line| line.values.iter().enumerate())
            .filter_map(|(x, value)| Some((x as f64 / last, ((*value)? / range.start).log10() / decades)));
        let places: Vec<(f64, f64)> = places.collect();
        let values_in = |corner: &SeriesLabelPosition| {
            let is_in = |(x, y): &&(f64, f64)| {
                let x = if matches!(corner, LowerLeft | UpperLeft) { *x } else { 1.0 - x };
                let y = if matches!(corner, LowerLeft | LowerRight) { *y } else { 1.0 - y };
                x <= width && y <= height
            };
            places.iter().filter(is_in).count()
        };
        let lower = if panel.rises { [LowerRight, LowerLeft] } else { [LowerLeft, LowerRight] };
        let corners = lower.into_iter().chain([UpperLeft, UpperRight]);
        corners.min_by_key(values_in).unwrap_or(LowerLeft)
    }

    /// From below the least value to above the largest one: decades are the same for all panels, and begin at 1 unless
    /// that is far away.
    fn y_range(&self, panel: &Panel) -> std::ops::Range<f64> {
        let most = panel.lines.iter().flat_map(|line| &line.values).flatten().copied().fold(0.0, f64::max);
        if self.scale == Scale::FromZero {
            // A panel without values has a scale, too.
            return 0.0..(if most > 0.0 { most } else { 1.0 }) * HEADROOM;
        }
        let values = || {
            let lines = self.panels.iter().flat_map(|panel| &panel.lines);
            lines.flat_map(|line| line.values.iter().flatten()).copied().filter(|value| *value > 0.0)
        };
        let least = values().fold(f64::INFINITY, f64::min);
        let least = if least < FAR_ABOVE_ONE { least.min(1.0) } else { least };
        let most = values().fold(0.0, f64::max).max(10.0);
        10_f64.powf(least.log10().floor())..10_f64.powf(most.log10().ceil())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let line = |look| Line { name: "1 KB".into(), colour: 0, look, values: vec![Some(0.02), None, Some(19.0)] };
        let lines = [Look::Measured, Look::Computed, Look::Published].map(line).into();
        let panel =
            Panel { title: "Reads".into(), ticks: ["0", "2", "10"].map(String::from).into(), lines, rises: true };
        Plot { panels: vec![panel], x_label: "round trip, ms", y_label: "MB/s", scale: Scale::Decades }
    }

    #[test]
    fn a_plot_has_all_values_and_no_background() {
        let svg = plot().to_svg().expect("a plot");
        assert_eq!(
            svg.matches("<circle").count(),
            2 + 2,
            "two values, and a mark for the names that are not published"
        );
        assert!(svg.contains("Reads") && svg.contains("MB/s"), "{svg}");
        assert!(!svg.contains("#FFFFFF"), "{svg}");
    }

    #[test]
    fn names_stand_where_no_values_are() {
        let mut plot = plot();
        let place = |plot: &Plot| plot.place_of_names(&plot.panels[0]);
        assert!(matches!(place(&plot), SeriesLabelPosition::LowerRight), "as the panel asks for");
        plot.panels[0].lines[0].values = vec![Some(0.02), None, Some(0.02)];
        assert!(matches!(place(&plot), SeriesLabelPosition::UpperLeft), "all other corners have values");
    }

    #[test]
    fn the_scale_has_whole_decades() {
        let mut high = plot();
        high.panels[0].lines.iter_mut().for_each(|line| line.values = vec![Some(150.0), None, Some(2e4)]);
        assert_eq!(high.y_range(&high.panels[0]), 100.0..1e5);
        assert_eq!(plot().y_range(&plot().panels[0]), 0.01..100.0);
        let from_zero = Plot { scale: Scale::FromZero, ..plot() };
        assert_eq!(from_zero.y_range(&from_zero.panels[0]), 0.0..19.0 * HEADROOM);
        assert!(from_zero.to_svg().expect("a plot").contains("<circle"));
    }

    #[test]
    fn colours_stand_out_on_light_and_dark_pages() {
        let dark = RGBColor(0x0d, 0x11, 0x17);
        for colour in COLOURS.into_iter().chain([GREY]) {
            for page in [RGBColor(255, 255, 255), dark] {
                let (one, other) = (luminance(colour) + 0.05, luminance(page) + 0.05);
                let contrast = (one / other).max(other / one);
                assert!(contrast >= 3.0, "{colour:?} on {page:?}: {contrast}");
            }
        }
    }

    /// Relative luminance, as the guidelines of the W3C define it.
    fn luminance(RGBColor(red, green, blue): RGBColor) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }
}
