//! What came of it: the results, how they were validated, and how the CPU time was shared.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fallow_domain::{Duration, Metric, RPCS_PER_JOB};
use fallow_proto::fleet::v1::Metrics;
use fallow_proto::operator::v1::{CanonicalResult, Host, ProjectSummary};
use serde_json::{Value, json};

use super::progress::{JUDGED_FROM, without_key};
use super::watch::FleetSnapshot;
use crate::cli::screen::wrapped;
use crate::cli::{Client, Failure, figure, metrics_json, percent, results_of};
use crate::printable;

/// Columns of the summary: it is read on terminals, in logs and in mails.
const WIDTH: usize = 80;

/// All that is said at the end.
pub(super) struct Summary {
    projects: Vec<ProjectSummary>,
    hosts: Vec<Host>,
    /// Contested CPU time since the shares were changed last, by project, and how long ago that was.
    since_change: Option<(BTreeMap<String, i64>, std::time::Duration)>,
    /// Workunits whose canonical output two hosts or more agreed on, by project.
    by_quorum: BTreeMap<String, usize>,
    found: Option<Found>,
    totient: Option<Totient>,
}

/// Exponents of Mersenne primes.
struct Found {
    exponents: Vec<u32>,
    tested: u64,
    /// Validated outputs that could not be read.
    unreadable: usize,
}

/// Sums of Euler's phi.
struct Totient {
    numbers: u64,
    sum: u128,
    unreadable: usize,
}

/// Asks for what is not in the snapshot: the results.
pub(super) async fn of(client: &mut Client, snapshot: &FleetSnapshot) -> Result<Summary, Failure> {
    let mut summary = Summary {
        projects: snapshot.projects.clone(),
        hosts: snapshot.hosts.clone(),
        since_change: snapshot.changed.as_ref().map(|changed| {
            let used =
                snapshot.projects.iter().map(|project| (project.name.clone(), snapshot.contested(project)));
            (used.collect(), changed.at.map(|at| at.elapsed()).unwrap_or_default())
        }),
        by_quorum: BTreeMap::new(),
        found: None,
        totient: None,
    };
    for project in snapshot.projects.iter().filter(|project| project.hosted) {
        let results = results_of(client, &project.name).await?;
        let agreed = results.iter().filter(|result| result.agreeing_hosts >= 2).count();
        summary.by_quorum.insert(project.name.clone(), agreed);
        match project.name.as_str() {
            "mersenne" => summary.found = Some(found(&results)),
            "totient" => summary.totient = Some(totient(&results)),
            _ => {}
        }
    }
    Ok(summary)
}

fn output(result: &CanonicalResult) -> Option<&str> {
    let output = result.outputs.iter().find(|output| output.open_name == "out")?;
    std::str::from_utf8(&output.content).ok()
}

fn found(results: &[CanonicalResult]) -> Found {
    let mut found = Found { exponents: Vec::new(), tested: 0, unreadable: 0 };
    for result in results {
        match output(result).and_then(fallow_mersenne::Report::parse) {
            Some(report) => {
                found.exponents.extend(report.found);
                found.tested += u64::from(report.tested);
            }
            None => found.unreadable += 1,
        }
    }
    found.exponents.sort_unstable();
    found
}

fn totient(results: &[CanonicalResult]) -> Totient {
    let mut totient = Totient { numbers: 0, sum: 0, unreadable: 0 };
    for result in results {
        match output(result).and_then(fallow_totient::Report::parse) {
            Some(report) => {
                totient.numbers += report.range.len();
                totient.sum += report.total();
            }
            None => totient.unreadable += 1,
        }
    }
    totient
}

impl Summary {
    fn contested(&self) -> f64 {
        self.projects.iter().map(|project| self.contested_of(project) as f64).sum()
    }

    /// A project's contested CPU time in microseconds; after a change of shares what came since.
    fn contested_of(&self, project: &ProjectSummary) -> i64 {
        let since = self.since_change.as_ref().and_then(|(since, _)| since.get(&project.name));
        since.copied().unwrap_or(project.cpu_contested_micros)
    }

    fn cpu(&self) -> f64 {
        self.projects.iter().map(|project| project.cpu_time_micros as f64).sum()
    }

    fn shares(&self) -> f64 {
        self.projects.iter().map(|project| project.share).sum()
    }

    /// Whether there was enough contested CPU time for a word on shares.
    fn is_judged(&self) -> bool {
        self.contested() >= JUDGED_FROM
    }

    /// How far a project's part of the contested CPU time is from its share, in points.
    fn distance(&self, project: &ProjectSummary) -> Option<f64> {
        let (contested, shares) = (self.contested(), self.shares());
        let parts = (self.contested_of(project) as f64 / contested, project.share / shares);
        (contested > 0.0 && shares > 0.0).then_some(100.0 * (parts.0 - parts.1))
    }

    /// The agents' ids, names and figures over the day, and the means over the agents that have one.
    fn metrics(&self) -> (Vec<(String, String, Metrics)>, Metrics) {
        let of = |host: &Host| {
            let state = host.state.clone().unwrap_or_default();
            (host.agent_id.clone(), state.name, state.day.unwrap_or_default())
        };
        let each: Vec<_> = self.hosts.iter().map(of).collect();
        let mean = |figure: fn(&Metrics) -> Option<f64>| {
            let figures: Vec<f64> = each.iter().filter_map(|(_, _, metrics)| figure(metrics)).collect();
            (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
        };
        let mean = Metrics {
            idleness: mean(|metrics| metrics.idleness),
            waste: mean(|metrics| metrics.waste),
            share_violation: mean(|metrics| metrics.share_violation),
            share_deviation: mean(|metrics| metrics.share_deviation),
            monotony: mean(|metrics| metrics.monotony),
            rpcs_per_job: mean(|metrics| metrics.rpcs_per_job),
        };
        (each, mean)
    }

    /// `seconds`: how long it took.
    pub(super) fn to_json(&self, seconds: f64) -> Value {
        let (contested, shares) = (self.contested(), self.shares());
        let part = |of: f64, all: f64| if all > 0.0 { Some(of / all) } else { None };
        let projects: Vec<_> = self
            .projects
            .iter()
            .map(|project| {
                let mut value = without_key(project);
                value["validated_by_quorum_on_different_hosts"] = json!(self.by_quorum.get(&project.name));
                value["cpu_fraction"] = json!(part(project.cpu_time_micros as f64, self.cpu()));
                value["cpu_contested_fraction"] = json!(part(self.contested_of(project) as f64, contested));
                value["share_fraction"] = json!(part(project.share, shares));
                value["points_from_share"] = json!(self.distance(project));
                value["share_judged"] = json!(self.is_judged());
                value
            })
            .collect();
        let (each, mean) = self.metrics();
        let agents: Vec<_> = each
            .iter()
            .map(|(agent, name, metrics)| {
                json!({ "agent_id": agent, "name": name, "metrics": metrics_json(Some(metrics)) })
            })
            .collect();
        json!({
            "event": "summary",
            "seconds": seconds,
            "mersenne_exponents": self.found.as_ref().map(|found| &found.exponents),
            "exponents_tested": self.found.as_ref().map(|found| found.tested),
            "seconds_since_shares_changed": self.since_change.as_ref().map(|(_, ago)| ago.as_secs()),
            "totient_numbers": self.totient.as_ref().map(|totient| totient.numbers),
            "totient_sum": self.totient.as_ref().map(|totient| totient.sum.to_string()),
            "projects": projects,
            "agents": agents,
            "metrics_mean": metrics_json(Some(&mean)),
        })
    }

    /// What it was for comes last: more follows it on a terminal than fits above.
    pub(super) fn to_text(&self, took: std::time::Duration) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text, took);
        text
    }

    fn write(&self, text: &mut String, took: std::time::Duration) -> std::fmt::Result {
        self.write_cpu(text)?;
        self.write_metrics(text)?;
        writeln!(text, "\nWorkunits validated by a quorum of 2 on different hosts")?;
        for project in &self.projects {
            let (agreed, all) = (self.by_quorum.get(&project.name).copied().unwrap_or(0), project.workunits);
            writeln!(text, "  {:<12} {agreed} of {all}, {} failed", project.name, project.workunits_failed)?;
        }
        self.write_results(text)?;
        let took = std::time::Duration::from_secs(took.as_secs());
        writeln!(text, "It took {} from start to end\n", humantime::format_duration(took))
    }

    fn write_results(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text)?;
        if let Some(Found { exponents, tested, unreadable }) = &self.found {
            let list: Vec<_> = exponents.iter().map(u32::to_string).collect();
            writeln!(text, "Mersenne primes 2^p - 1 found, from the validated results, for p =")?;
            let list = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
            writeln!(text, "{}", wrapped(&format!("  {list}"), WIDTH))?;
            writeln!(text, "  ({} of {tested} prime exponents tested)", exponents.len())?;
            unread(text, *unreadable)?;
        }
        if let Some(Totient { numbers, sum, unreadable }) = &self.totient {
            writeln!(text, "Sum of Euler's phi over {numbers} numbers: {sum}")?;
            unread(text, *unreadable)?;
        }
        Ok(())
    }

    fn write_cpu(&self, text: &mut String) -> std::fmt::Result {
        let (cpu, contested, shares) = (self.cpu(), self.contested(), self.shares());
        writeln!(text, "\nCPU time over all agents, as the kernel counts it")?;
        writeln!(
            text,
            "  {:<12} {:>10} {:>8}   {:>10} {:>8} {:>8} {:>14}",
            "", "in all", "", "contested", "", "target", "points off"
        )?;
        for project in &self.projects {
            let (all, both) = (project.cpu_time_micros, self.contested_of(project));
            let distance = self.distance(project).filter(|_| self.is_judged());
            let distance = distance.map_or_else(|| "not judged".to_owned(), |points| format!("{points:+.1}"));
            writeln!(
                text,
                "  {:<12} {:>10} {:>8}   {:>10} {:>8} {:>8} {:>14}",
                project.name,
                seconds(all),
                percent(all as f64, cpu),
                seconds(both),
                percent(both as f64, contested),
                percent(project.share, shares),
                distance
            )?;
        }
        let rule = "  Contested: used while every project with a share had runnable work on that host, which is when \
            shares can be kept. The agents count it; these are the sums.";
        writeln!(text, "{}", wrapped(rule, WIDTH))?;
        if !self.is_judged() {
            let why = format!(
                "  {} of contested CPU time in all is too little to judge shares by: from {} on they are.",
                seconds(self.contested() as i64),
                seconds(JUDGED_FROM as i64)
            );
            writeln!(text, "{}", wrapped(&why, WIDTH))?;
        }
        match &self.since_change {
            Some((_, ago)) => writeln!(
                text,
                "  Shares were changed {} s ago: contested CPU time is what was used since then.",
                ago.as_secs()
            ),
            None => Ok(()),
        }
    }

    fn write_metrics(&self, text: &mut String) -> std::fmt::Result {
        let (each, mean) = self.metrics();
        writeln!(text, "\nMetrics, from 0 (good) to 1, and scheduler RPCs per job")?;
        // Names of two words stand on two lines: the table fits into 80 columns.
        let names = Metric::ALL.map(Metric::name).into_iter().chain([RPCS_PER_JOB.name]);
        let (above, below): (Vec<_>, Vec<_>) =
            names.map(|name| name.split_once(' ').unwrap_or(("", name))).unzip();
        row(text, "", &above)?;
        row(text, "agent", &below)?;
        let each = each
            .iter()
            .map(|(id, name, metrics)| (if name.is_empty() { id.as_str() } else { name.as_str() }, metrics));
        for (name, metrics) in each.chain([("mean", &mean)]) {
            let figures = [
                metrics.idleness,
                metrics.waste,
                metrics.share_violation,
                metrics.share_deviation,
                metrics.monotony,
                metrics.rpcs_per_job,
            ];
            let figures = figures.map(figure);
            row(text, &printable::line(name, 17), &figures.each_ref().map(String::as_str))?;
        }
        Ok(())
    }
}

/// A row of the table of metrics.
fn row(text: &mut String, name: &str, cells: &[&str]) -> std::fmt::Result {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>9}")).collect();
    writeln!(text, "{}", format!("  {name:<17}{cells}").trim_end())
}

fn seconds(micros: i64) -> String {
    format!("{:.1} s", Duration::from_micros(micros).as_secs_f64())
}

fn unread(text: &mut String, count: usize) -> std::fmt::Result {
    if count > 0 {
        writeln!(text, "  {count} validated outputs could not be read")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_and_how_long_it_took_come_last_and_headings_are_true() {
        let found = Found { exponents: vec![2, 3, 5, 7, 13], tested: 25, unreadable: 0 };
        let summary = Summary {
            projects: vec![ProjectSummary { name: "mersenne".into(), ..ProjectSummary::default() }],
            hosts: Vec::new(),
            since_change: None,
            by_quorum: BTreeMap::new(),
            found: Some(found),
            totient: None,
        };
        let text = summary.to_text(std::time::Duration::from_millis(133_400));
        let last: Vec<&str> = text.trim_end().lines().rev().take(3).collect();
        let expected =
            ["It took 2m 13s from start to end", "  (5 of 25 prime exponents tested)", "  2, 3, 5, 7, 13"];
        assert_eq!(last, expected, "{text}");
        assert!(text.contains("Metrics, from 0 (good) to 1, and scheduler RPCs per job\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(summary.to_json(133.4)["seconds"], 133.4);
    }
}
