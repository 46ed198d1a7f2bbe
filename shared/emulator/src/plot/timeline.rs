//! What ran on which instance when.
//!
//! Time runs from left to right in rows of equal length, a lane for each instance of a resource type, a block
//! for each stretch of a job in its project's colour. Jobs that missed their deadline have a black bar along
//! their foot, and a black wedge where the deadline was. Above the lanes a strip shows when the host was off;
//! where that is long enough to be seen, the lanes below are shaded too, since nothing ran.

use std::collections::BTreeMap;

use fallow_domain::{Duration, ResourceType};

use super::canvas::{
    self, Anchor, BLACK, Canvas, Color, DrawError, Drawn, GREY, LIGHT, WHITE, color, wants_black, width_of,
};
use super::ticks;
use crate::engine::{Span, Timeline};

/// What a timeline is drawn on.
#[derive(Clone, Debug)]
pub struct TimelineFigure<'a> {
    /// What is shown: scenario, policies, seed.
    pub title: &'a str,
    /// How long was simulated.
    pub length: Duration,
    /// The resource types with how many instances each has, in the order of the lanes.
    pub instances: Vec<(ResourceType, u32)>,
    /// The projects' names, in the scenario's order.
    pub projects: Vec<&'a str>,
}

const WIDTH: i32 = 1440;
const LEFT: i32 = 84;
const RIGHT: i32 = 30;
const TOP: i32 = 44;
const STRIP: i32 = 7;
const AXIS: i32 = 34;
const TEXT: i32 = 11;
const NUMBER: i32 = 9;
const LEGEND_LINE: i32 = 22;
/// Rows at most, if the time is not longer than the longest row allows.
const ROWS_MAX: i64 = 10;
/// More lanes than this are not drawn: no screen shows them.
const LANES_MAX: usize = 256;

/// A timeline as SVG.
///
/// # Errors
/// [`DrawError`] when the library that draws fails, which it does not on a text.
pub fn svg(figure: &TimelineFigure<'_>, timeline: &Timeline) -> Result<String, DrawError> {
    let sheet = Sheet::new(figure);
    let legend = legend_lines(figure);
    let height = TOP + sheet.rows as i32 * sheet.row_height() + legend.len() as i32 * LEGEND_LINE + 16;
    canvas::svg((WIDTH, height), |canvas| {
        canvas.text(figure.title, (LEFT, 20), 15, Anchor::Left, BLACK)?;
        for row in 0..sheet.rows {
            draw_frame(canvas, &sheet, row)?;
        }
        draw_spans(canvas, &sheet, timeline)?;
        draw_off(canvas, &sheet, timeline)?;
        draw_numbers(canvas, &sheet, timeline)?;
        draw_deadlines(canvas, &sheet, timeline)?;
        for (index, line) in legend.iter().enumerate() {
            draw_legend(
                canvas,
                line,
                TOP + sheet.rows as i32 * sheet.row_height() + index as i32 * LEGEND_LINE + 12,
            )?;
        }
        Ok(())
    })
}

/// Where time and instances are on the sheet.
struct Sheet {
    rows: i64,
    row: Duration,
    length: Duration,
    /// `CPU 0` and so on, and which lane it is.
    names: Vec<String>,
    lanes: BTreeMap<(ResourceType, u32), usize>,
    lane_height: i32,
    /// Where time begins: right of the widest of the lanes' names.
    left: i32,
}

impl Sheet {
    fn new(figure: &TimelineFigure<'_>) -> Self {
        let each = figure.instances.iter().flat_map(|(kind, count)| (0..*count).map(move |n| (*kind, n)));
        let keys: Vec<(ResourceType, u32)> = each.take(LANES_MAX).collect();
        let (rows, row) = rows(figure.length);
        let name = |(kind, n): &(ResourceType, u32)| format!("{} {n}", kind_name(*kind));
        let names: Vec<String> = keys.iter().map(name).collect();
        let widest = names.iter().map(|name| width_of(name, TEXT)).max().unwrap_or(0);
        Self {
            rows,
            row,
            length: figure.length,
            names,
            left: LEFT.max(widest + 20),
            lane_height: if keys.len() <= 8 { 20 } else { 12 },
            lanes: keys.into_iter().zip(0..).collect(),
        }
    }

    fn row_height(&self) -> i32 {
        STRIP + 3 + self.names.len() as i32 * self.lane_height + AXIS
    }

    fn row_top(&self, row: i64) -> i32 {
        TOP + row as i32 * self.row_height()
    }

    fn lane_top(&self, row: i64, lane: usize) -> i32 {
        self.row_top(row) + STRIP + 3 + lane as i32 * self.lane_height
    }

    /// Where a time is within a row, which it may lie outside of.
    fn x(&self, row: i64, time: Duration) -> i32 {
        let part = (time - self.row * row).as_secs_f64() / self.row.as_secs_f64();
        self.left + (part.clamp(0.0, 1.0) * f64::from(WIDTH - self.left - RIGHT)).round() as i32
    }

    /// The pieces of a stretch of time: row, from, to.
    fn pieces(&self, from: Duration, to: Duration) -> impl Iterator<Item = (i64, i32, i32)> + '_ {
        let (from, to) = (from.max(Duration::ZERO), to.min(self.length));
        let first = from.as_micros() / self.row.as_micros().max(1);
        let last = to.as_micros() / self.row.as_micros().max(1);
        (first..=last.min(self.rows - 1)).map(move |row| (row, self.x(row, from), self.x(row, to)))
    }
}

/// How many rows of which length: as few as there can be of a length that people count in.
fn rows(length: Duration) -> (i64, Duration) {
    const HOURS: [i64; 13] = [1, 3, 6, 12, 24, 48, 120, 240, 480, 1_200, 2_400, 8_760, 87_600];
    let rows = |row: Duration| {
        let (length, row) = (length.as_micros().max(1), row.as_micros().max(1));
        length / row + i64::from(length % row != 0)
    };
    let mut hours = HOURS.into_iter().map(Duration::from_hours);
    let row = hours.find(|row| rows(*row) <= ROWS_MAX).unwrap_or(length);
    // A run that fits one row need not leave half of it empty.
    if rows(row) == 1 { (1, length.max(Duration::from_secs(1))) } else { (rows(row), row) }
}

fn kind_name(kind: ResourceType) -> String {
    format!("{kind}")
}

fn draw_frame(canvas: &Canvas<'_>, sheet: &Sheet, row: i64) -> Drawn {
    let start = sheet.row * row;
    let end = (start + sheet.row).min(sheet.length);
    let (top, right) = (sheet.row_top(row), sheet.x(row, end));
    let bottom = sheet.lane_top(row, sheet.names.len());
    for (lane, name) in sheet.names.iter().enumerate() {
        let y = sheet.lane_top(row, lane);
        canvas.text(name, (sheet.left - 8, y + sheet.lane_height / 2), TEXT, Anchor::Right, BLACK)?;
        canvas.block((sheet.left, y), (right, y + sheet.lane_height - 2), LIGHT, 0.4)?;
    }
    canvas.text("host off", (sheet.left - 8, top + STRIP / 2), 9, Anchor::Right, GREY)?;
    canvas.line(&[(sheet.left, bottom), (right, bottom)], BLACK, 1)?;
    // Days where a row holds some, hours below.
    let (unit, name) = if sheet.row >= Duration::from_hours(48) { (86_400.0, "d") } else { (3_600.0, "h") };
    for (value, label) in ticks::linear(start.as_secs_f64() / unit, end.as_secs_f64() / unit, 26) {
        let x = sheet.x(row, Duration::from_secs_f64(value * unit));
        canvas.line(&[(x, bottom), (x, bottom + 5)], BLACK, 1)?;
        canvas.text(&format!("{label} {name}"), (x, bottom + 13), TEXT, Anchor::Center, BLACK)?;
    }
    Ok(())
}

fn draw_spans(canvas: &Canvas<'_>, sheet: &Sheet, timeline: &Timeline) -> Drawn {
    let late = late_jobs(timeline);
    // How far each lane of each row is painted, so that a crowd of short stretches costs no more than its
    // pixels.
    let mut painted: BTreeMap<(i64, usize), i32> = BTreeMap::new();
    for span in in_order(timeline) {
        let Some(lane) = sheet.lanes.get(&(span.kind, span.instance)).copied() else { continue };
        for (row, from, to) in sheet.pieces(span.from, span.to) {
            let done = painted.entry((row, lane)).or_insert(sheet.left - 1);
            if to <= *done {
                continue;
            }
            let from = from.max(*done);
            *done = to;
            let (top, bottom) =
                (sheet.lane_top(row, lane), sheet.lane_top(row, lane) + sheet.lane_height - 2);
            // A hair of white between neighbours, where there is room for it.
            let left = if to - from > 3 { from + 1 } else { from };
            canvas.block((left, top), (to.max(left + 1), bottom), color(span.project), 1.0)?;
            if late.contains_key(&(span.project, span.job)) {
                canvas.block((left, bottom - 4), (to.max(left + 1), bottom), BLACK, 1.0)?;
            }
        }
    }
    Ok(())
}

/// The projects' numbers, as in the legend, where there is room: eighteen colours are more than anybody tells
/// apart.
fn draw_numbers(canvas: &Canvas<'_>, sheet: &Sheet, timeline: &Timeline) -> Drawn {
    for span in in_order(timeline) {
        let Some(lane) = sheet.lanes.get(&(span.kind, span.instance)).copied() else { continue };
        for (row, from, to) in sheet.pieces(span.from, span.to) {
            let number = (span.project + 1).to_string();
            if to - from > width_of(&number, NUMBER) + 6 {
                let at = (i32::midpoint(from, to), sheet.lane_top(row, lane) + sheet.lane_height / 2 - 2);
                canvas.text(&number, at, NUMBER, Anchor::Center, letters(color(span.project)))?;
            }
        }
    }
    Ok(())
}

/// The colour of letters on a colour.
fn letters(on: Color) -> Color {
    if wants_black(on) { BLACK } else { WHITE }
}

/// Spans by their beginnings: they are recorded by their ends.
fn in_order(timeline: &Timeline) -> Vec<&Span> {
    let mut spans: Vec<&Span> = timeline.spans.iter().collect();
    spans.sort_by_key(|span| (span.from, span.to, span.instance, span.project, span.job));
    spans
}

/// The jobs that missed their deadline, with it.
fn late_jobs(timeline: &Timeline) -> BTreeMap<(usize, u64), Duration> {
    let late = timeline.outcomes.iter().filter(|ended_job| !ended_job.met && !ended_job.failed);
    late.map(|ended_job| ((ended_job.project, ended_job.job), ended_job.deadline)).collect()
}

fn draw_off(canvas: &Canvas<'_>, sheet: &Sheet, timeline: &Timeline) -> Drawn {
    /// Pixels of the strip that share a shade.
    const CELL: i32 = 3;
    let mut cells: BTreeMap<(i64, i32), f64> = BTreeMap::new();
    let pixel = sheet.row.as_secs_f64() / f64::from(WIDTH - sheet.left - RIGHT);
    for (from, to) in &timeline.off {
        for (row, left, right) in sheet.pieces(*from, *to) {
            if right - left >= 3 {
                let bottom = sheet.lane_top(row, sheet.names.len()) - 2;
                canvas.block((left, sheet.lane_top(row, 0)), (right, bottom), GREY, 0.55)?;
            }
            // Exact parts of the cells that it touches.
            let start = sheet.row * row;
            let at = |time: Duration| {
                ((time - start).as_secs_f64() / pixel).clamp(0.0, f64::from(WIDTH - sheet.left - RIGHT))
            };
            let (from, to) = (at(*from), at(*to));
            let cell = f64::from(CELL);
            for n in (from / cell) as i32..=(to / cell) as i32 {
                let (low, high) = (f64::from(n) * cell, f64::from(n + 1) * cell);
                *cells.entry((row, n)).or_default() += (to.min(high) - from.max(low)).max(0.0) / cell;
            }
        }
    }
    for ((row, n), part) in cells {
        let (top, left) = (sheet.row_top(row), sheet.left + n * CELL);
        // Quarters are enough to see.
        let shade = (part.min(1.0) * 4.0).round() / 4.0;
        if shade > 0.0 && left < WIDTH - RIGHT {
            canvas.block((left, top), (left + CELL, top + STRIP), BLACK, shade)?;
        }
    }
    Ok(())
}

fn draw_deadlines(canvas: &Canvas<'_>, sheet: &Sheet, timeline: &Timeline) -> Drawn {
    let mut lane_of: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    for span in in_order(timeline) {
        if let Some(lane) = sheet.lanes.get(&(span.kind, span.instance)) {
            lane_of.insert((span.project, span.job), *lane);
        }
    }
    for (job, deadline) in late_jobs(timeline) {
        // A job that never ran has no lane: its deadline is shown on the first.
        let lane = lane_of.get(&job).copied().unwrap_or(0);
        if let Some((row, x, _)) = sheet.pieces(deadline, deadline).next() {
            let y = sheet.lane_top(row, lane);
            canvas.shape(&[(x - 5, y - 3), (x + 5, y - 3), (x, y + 7)], BLACK)?;
        }
    }
    Ok(())
}

/// What an entry of the legend shows beside its words.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    Project(usize),
    Late,
    Deadline,
    Off,
}

fn entry_width(label: &str) -> i32 {
    28 + width_of(label, 12) + 24
}

fn legend_lines<'a>(figure: &TimelineFigure<'a>) -> Vec<Vec<(&'a str, Sign)>> {
    let projects = figure.projects.iter().enumerate().map(|(n, name)| (*name, Sign::Project(n)));
    let signs = [
        ("job that missed its deadline", Sign::Late),
        ("the deadline", Sign::Deadline),
        ("host off", Sign::Off),
    ];
    let mut lines: Vec<Vec<(&str, Sign)>> = Vec::new();
    let mut used = 0;
    for entry in signs.into_iter().chain(projects) {
        let needs = entry_width(entry.0);
        if lines.is_empty() || used + needs > WIDTH - LEFT - RIGHT {
            lines.push(Vec::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push(entry);
        }
        used += needs;
    }
    lines
}

fn draw_legend(canvas: &Canvas<'_>, line: &[(&str, Sign)], y: i32) -> Drawn {
    let mut x = LEFT;
    for (label, sign) in line {
        match sign {
            Sign::Project(n) => {
                canvas.block((x, y - 7), (x + 20, y + 7), color(*n), 1.0)?;
                let number = (n + 1).to_string();
                canvas.text(&number, (x + 10, y), NUMBER, Anchor::Center, letters(color(*n)))?;
            }
            Sign::Late => {
                canvas.block((x, y - 7), (x + 20, y + 7), LIGHT, 1.0)?;
                canvas.block((x, y + 3), (x + 20, y + 7), BLACK, 1.0)?;
            }
            Sign::Deadline => canvas.shape(&[(x + 5, y - 5), (x + 15, y - 5), (x + 10, y + 5)], BLACK)?,
            Sign::Off => canvas.block((x, y - 7), (x + 20, y + 7), GREY, 0.55)?,
        }
        canvas.text(label, (x + 28, y), 12, Anchor::Left, GREY)?;
        x += entry_width(label);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EndedJob;

    const HOUR: Duration = Duration::from_hours(1);

    fn lanes(days: i64) -> TimelineFigure<'static> {
        TimelineFigure {
            title: "base, seed 1",
            length: HOUR * 24 * days,
            instances: vec![(ResourceType::Cpu, 2)],
            projects: vec!["p1", "p<2>"],
        }
    }

    #[test]
    fn time_is_cut_into_rows_that_people_count_in() {
        assert_eq!(rows(HOUR * 2_400), (10, HOUR * 240));
        assert_eq!(rows(HOUR * 24), (8, HOUR * 3));
        assert_eq!(rows(HOUR * 25), (9, HOUR * 3));
        assert_eq!(rows(Duration::from_secs(60)), (1, Duration::from_secs(60)));
        assert_eq!(rows(HOUR * 8_760 * 200).0, 1);
        assert_eq!(rows(Duration::ZERO).0, 1);
    }

    #[test]
    fn r5_14_a_timeline_shows_late_jobs_and_the_same_bytes_for_the_same_run() {
        let span = |project, job, from: i64, to: i64| Span {
            kind: ResourceType::Cpu,
            instance: job as u32 % 2,
            project,
            job,
            from: HOUR * from,
            to: HOUR * to,
        };
        let ended_job = |project, job, met| EndedJob {
            project,
            job,
            sent: Duration::ZERO,
            deadline: HOUR * 30,
            reported: Some(HOUR * 40),
            met,
            failed: false,
        };
        let met = Timeline {
            spans: vec![span(0, 0, 0, 20), span(1, 1, 5, 70)],
            off: vec![(HOUR * 3, HOUR * 4)],
            outcomes: vec![ended_job(0, 0, true), ended_job(1, 1, true)],
        };
        let missed =
            Timeline { outcomes: vec![ended_job(0, 0, true), ended_job(1, 1, false)], ..met.clone() };
        let drawn = |timeline| svg(&lanes(4), timeline).unwrap();
        assert_eq!(drawn(&met), drawn(&met));
        assert!(drawn(&met).contains("p&lt;2&gt;"));
        // A wedge more than the one of the legend, and bars along the foot.
        let wedges = |svg: &str| svg.matches("<polygon").count();
        assert_eq!(wedges(&drawn(&missed)), wedges(&drawn(&met)) + 1);
        assert!(drawn(&missed).matches("<rect").count() > drawn(&met).matches("<rect").count());
    }

    #[test]
    fn the_name_of_a_gpu_is_not_cut_at_the_edge() {
        let gpu = TimelineFigure { instances: vec![(ResourceType::Nvidia, 12)], ..lanes(4) };
        let sheet = Sheet::new(&gpu);
        let widest = sheet.names.iter().map(|name| width_of(name, TEXT)).max().unwrap();
        assert!(sheet.left - 8 - widest >= 8, "{} {widest}", sheet.left);
        assert_eq!(Sheet::new(&lanes(4)).left, LEFT);
    }

    #[test]
    fn a_crowd_of_stretches_costs_no_more_than_its_pixels() {
        let crowd = (0..200_000_i64).map(|n| Span {
            kind: ResourceType::Cpu,
            instance: 0,
            project: 0,
            job: n as u64,
            from: Duration::from_secs(n),
            to: Duration::from_secs(n + 1),
        });
        let timeline = Timeline { spans: crowd.collect(), ..Timeline::default() };
        assert!(svg(&lanes(100), &timeline).unwrap().len() < 100_000);
    }
}
