//! Whether a version harms the hosts that have it.
//!
//! Hosts with the new version are compared with those that have the version before, at the same time, and
//! with themselves before they got it. Two kinds of tests:
//!
//! *Guards* are plain counts, for what no chance explains; they also judge a wave of one host: hosts refuse
//! the version, or went back from it by themselves (one in twenty of those that it was given to, at least
//! one); half of them at least cannot
//! reach a project any more; together they offer, or compute with, less than half of what they did before.
//! But for refusals and what is offered, a guard holds only beside hosts with the version before that do not
//! fare likewise: when all have the new one, a project's server that is down is nobody's proof.
//!
//! *Statistics* see less than that in larger waves: Fisher's exact test for what a host shows or not (cut
//! off, most jobs failed, limits tightened), the one-sided rank-sum test for amounts (CPUs that do not
//! compute although they could and did before; CPU time wasted; how much the violation of shares rose).
//! Each wave is wrong by chance once in a hundred at most: a hundredth is shared out among all tests of all
//! four looks.
//!
//! Only hosts count to which the new version says something else. A link that is lost never condemns a
//! version: machines are switched off.
//!
//! Where few hosts say little, that is no proof that all is well: a wave whose hosts are off is waited for,
//! whatever hosts of earlier waves show (`waiting`); if many of its hosts were lost that may just be off
//! (`lost`), or do not take the version, it is uncertain, and somebody has to look. So it is where hosts
//! rest by a pause that the version makes more likely, such as hours that it cuts: it may be meant so. What
//! an owner takes away from the fleet is his doing, and not the version's.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{AgentId, MasterUrl};

use crate::lost::Off;
use crate::own::Own;
use crate::rollout::Placed;
use crate::soak::{LOOKS, Soak, Track};
use crate::statistics::{fisher, rank_sum};
use crate::waiting::{PATIENCE, coming};
use crate::{Gate, HostNow, Load, Rollout};

/// How often a wave may be called harmful by chance.
pub(crate) const ALPHA: f64 = 0.01;
/// Statistics of a look.
const TESTS: f64 = 6.0;
/// Below this part of what was before, hosts have collapsed.
const COLLAPSE: f64 = 0.5;
/// Hosts that compute with less than that of their CPUs say nothing by computing with less.
const COMPUTING_MIN: f64 = 0.1;
/// Parts of CPUs, or of shares, below which a difference does not count.
const LEAST: f64 = 0.05;
/// The part of hosts with the version before up to which what they show is usual.
const USUAL: f64 = 0.1;
/// What fewer hosts with the version before show excuses nothing: one of them may lie.
const OTHERS_MIN: usize = 3;
/// The part of hosts up to which it is usual that some are switched off or slow.
pub(crate) const MISSING_USUAL: f64 = 0.2;

/// What a version is found to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It is watched on.
    Watch,
    /// Nothing speaks against it.
    Pass(String),
    /// It harms.
    Fail(Gate, String),
    /// It cannot be said.
    Uncertain(String),
}

/// Counts of hosts that show something, with the name of one that has the new version.
#[derive(Clone, Debug, Default)]
struct Shown {
    new: (usize, usize),
    old: (usize, usize),
    example: String,
}

impl Shown {
    fn among<'t>(tracks: impl Iterator<Item = &'t Track>, shows: impl Fn(&Track) -> bool) -> Self {
        let mut shown = Self::default();
        for track in tracks {
            let is_shown = shows(track);
            let (count, all) = if track.is_new { &mut shown.new } else { &mut shown.old };
            *all += 1;
            *count += usize::from(is_shown);
            if is_shown && track.is_new && shown.example.is_empty() {
                shown.example.clone_from(&track.name);
            }
        }
        shown
    }

    /// Half of the new ones.
    fn is_half_of_new(&self) -> bool {
        let (new, all) = self.new;
        new > 0 && new * 2 >= all
    }

    /// Hardly any of the old ones, of which there are some. One of several is none, or it could have all
    /// others cut off.
    fn is_unusual(&self) -> bool {
        let (old, all) = self.old;
        let one = if all >= OTHERS_MIN { 1.0_f64 } else { 0.0 };
        all > 0 && old as f64 <= one.max(USUAL * all as f64)
    }

    fn said(&self) -> String {
        let ((new, new_all), (old, old_all)) = (self.new, self.old);
        format!(
            "{new} of {} with the new version (such as {}), {old} of {old_all} with the one before",
            crate::hosts(new_all),
            self.example
        )
    }
}

/// Judges what was seen so far.
pub(crate) fn judge(rollout: &Rollout, soak: &mut Soak, hosts: &[Placed<'_>]) -> Judgement {
    let gates = &rollout.plan.gates;
    if gates.has(Gate::Refused)
        && let Some(why) = refusals(rollout, hosts)
    {
        return Judgement::Fail(Gate::Refused, why);
    }
    let is_last = soak.watched() >= rollout.plan.soak;
    let found = if is_last { end(rollout, soak, hosts) } else { Judgement::Watch };
    // The last look is taken whatever else is to be said, if there are hosts that were there for long
    // enough: what harms is no matter of opinion.
    let votes = soak.voting(rollout.plan.soak).next().is_some();
    let is_look = soak.look(rollout.plan.soak) || found != Judgement::Watch && votes;
    // A wave may be waited for through days: guards are looked at once more in each soak time. Statistics
    // are not, as their chance to be wrong is shared out among the other looks.
    let is_later = is_last && votes && soak.look_later(rollout.plan.soak);
    let mut failed = if is_look || is_later { guards(rollout, soak) } else { Vec::new() };
    if is_look {
        failed.extend(statistics(rollout, soak));
    }
    match failed.into_iter().find(|(gate, _)| gates.has(*gate)) {
        Some((gate, why)) => Judgement::Fail(gate, why),
        None => found,
    }
}

/// The copies of a machine that were given the version.
#[derive(Default)]
struct Copies<'h> {
    /// Those that are there, or were and answered.
    reached: usize,
    /// Those that turned it down.
    refusing: usize,
    /// The first of these, and why.
    example: Option<(&'h HostNow, String)>,
}

/// Machines that refuse the version, or went back from it: one in twenty of those that it reached. A machine
/// has one voice, however many copies it has, and does so if half of them do: where all hosts of a lab were
/// set up from one image, neither one of them decides that the version is bad, nor one that it is good.
fn refusals(rollout: &Rollout, hosts: &[Placed<'_>]) -> Option<String> {
    let mut machines: BTreeMap<&AgentId, Copies<'_>> = BTreeMap::new();
    for host in given(hosts) {
        let why = host.turned_down(rollout.candidate);
        // Whoever answers first is not all; and who answered and is off now was reached, too.
        if host.connected || host.version == rollout.candidate || why.is_some() {
            let copies = machines.entry(&host.machine).or_default();
            copies.reached += 1;
            copies.refusing += usize::from(why.is_some());
            copies.example = copies.example.take().or_else(|| why.map(|why| (host, why)));
        }
    }
    let reached = machines.len();
    let of_all = machines.into_values().filter(|copies| copies.refusing * 2 >= copies.reached);
    let refusing: Vec<_> =
        of_all.filter_map(|copies| Some((copies.example?, copies.refusing, copies.reached))).collect();
    let ((first, why), copies, all) = refusing.first()?;
    let count = refusing.len();
    let copies = match all {
        1 => String::new(),
        all => format!(" and its copies, of which {copies} of {all} do so (a machine counts once)"),
    };
    (count * 20 >= reached).then(|| {
        format!("{count} of {} refuse it, such as {}{copies}: {why}", crate::hosts(reached), first.called())
    })
}

/// Hosts that were given the version, of those to which it says something else.
fn given<'h>(hosts: &[Placed<'h>]) -> impl Iterator<Item = &'h HostNow> {
    hosts.iter().filter(|at| at.is_released && at.host.changed).map(|at| at.host)
}

fn guards(rollout: &Rollout, soak: &Soak) -> Vec<(Gate, String)> {
    let mut found = Vec::new();
    let cut_off = cut_off(soak);
    if cut_off.is_half_of_new() && cut_off.is_unusual() {
        let url = there(soak).filter(|track| track.is_new).find_map(|track| track.cut_off());
        let url = url.map_or("", MasterUrl::as_str);
        found.push((Gate::CutOff, format!("{url} is not reached by {}", cut_off.said())));
    }
    let offered = Change::of(rollout, soak, Track::load, |load| load.offered);
    // Nothing from outside takes CPUs from hosts, as a server that is down takes jobs.
    if offered.has_collapsed(0.0, OTHERS_MIN) {
        let few = match offered.hosts {
            [_, 1..OTHERS_MIN] => "; fewer than three others excuse nothing",
            _ => "",
        };
        found.push((Gate::Offered, format!("of their CPUs {}{few}", offered.said("may be used"))));
    }
    let computing = Change::of(rollout, soak, Track::load, |load| load.computing);
    let [_, old] = computing.hosts;
    if old > 0 && computing.has_collapsed(COMPUTING_MIN, 1) {
        found.push((Gate::Idle, format!("of their CPUs {}", computing.said("compute"))));
    }
    found
}

fn there(soak: &Soak) -> impl Iterator<Item = &Track> {
    soak.tracks().map(|(_, track)| track).filter(|track| track.is_there())
}

fn cut_off(soak: &Soak) -> Shown {
    Shown::among(there(soak), |track| track.cut_off().is_some())
}

/// A mean, before and now, of hosts with the new version and of the others.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// Before and now.
    new: [f64; 2],
    old: [f64; 2],
    /// New ones and old ones.
    hosts: [usize; 2],
}

impl Change {
    fn of(rollout: &Rollout, soak: &Soak, load: fn(&Track) -> Option<Load>, part: fn(&Load) -> f64) -> Self {
        // Each host beside itself: of one that was not seen before nothing can be said.
        let of = |is_new: bool| {
            // What an owner takes away is his doing.
            let counts = |track: &Track| track.is_there() && !track.is_tightened() && track.is_new == is_new;
            let tracks = soak.tracks().filter(|(_, track)| counts(track));
            let before = |id| soak.before(id).or_else(|| rollout.before.get(id).copied());
            let seen: Vec<_> = tracks.filter_map(|(id, track)| Some((before(id)?, load(track)?))).collect();
            let before = Load::mean(seen.iter().map(|(before, _)| *before));
            (before, Load::mean(seen.iter().map(|(_, now)| *now)), seen.len())
        };
        let ((before_new, now_new, new), (before_old, now_old, old)) = (of(true), of(false));
        let pair = |before: Option<Load>, now: Option<Load>| {
            [before, now].map(|load| load.as_ref().map_or(0.0, part))
        };
        Self { new: pair(before_new, now_new), old: pair(before_old, now_old), hosts: [new, old] }
    }

    /// `others` are as many with the version before as are believed where they fare likewise.
    fn has_collapsed(&self, least: f64, others: usize) -> bool {
        let ([before, now], [before_old, now_old]) = (self.new, self.old);
        let [hosts, hosts_old] = self.hosts;
        if hosts == 0 || before <= least {
            return false;
        }
        let usual = match hosts_old >= others && before_old > least {
            true => (now_old / before_old).min(1.0),
            false => 1.0,
        };
        now < before * COLLAPSE * usual
    }

    fn said(&self, what: &str) -> String {
        let ([before, now], [before_old, now_old]) = (self.new, self.old);
        let percent = |part: f64| format!("{:.0}%", part * 100.0);
        let [hosts, hosts_old] = self.hosts;
        let mut said = format!(
            "{} {what} on {} with the new version, {} before it",
            percent(now),
            crate::hosts(hosts),
            percent(before)
        );
        if hosts_old > 0 {
            said += &format!(
                "; on {} with the version before {}, and {} then",
                crate::hosts(hosts_old),
                percent(now_old),
                percent(before_old)
            );
        }
        said
    }
}

/// What is less than that means nothing to anybody, however sure it is.
fn notable(difference: f64) -> f64 {
    if difference < LEAST { 0.0 } else { difference }
}

fn statistics(rollout: &Rollout, soak: &Soak) -> Vec<(Gate, String)> {
    let level = ALPHA / (f64::from(LOOKS) * TESTS);
    let shown = [
        (Gate::CutOff, cut_off(soak), "a project is not reached by"),
        (Gate::Failed, Shown::among(there(soak), Track::jobs_fail), "half of the jobs fail on"),
        (Gate::Tightened, Shown::among(there(soak), Track::is_tightened), "owners tightened limits on"),
    ];
    let mut found = Vec::new();
    for (gate, shown, words) in shown {
        let p = fisher(shown.new, shown.old);
        if p < level {
            found.push((gate, format!("{words} {} (Fisher's exact test, p = {p:.1e})", shown.said())));
        }
    }
    let amounts: [(Gate, &str, Amount<'_>); 3] = [
        (Gate::Idle, "CPUs compute less", &|id, track| {
            let before = soak.before(id).or_else(|| rollout.before.get(id).copied())?;
            // Less than before, as far as it may.
            let due = before.computing.min(track.offered_now());
            Some(notable(due - track.load()?.computing))
        }),
        (Gate::Wasted, "more CPU time is wasted", &|_, track| track.wasted()),
        (Gate::Shares, "shares are violated more", &|_, track| track.shares().map(notable)),
    ];
    for (gate, words, amount) in amounts {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for (id, track) in soak.tracks().filter(|(_, track)| track.is_there()) {
            let to = if track.is_new { &mut new } else { &mut old };
            to.extend(amount(id, track));
        }
        let p = rank_sum(&new, &old);
        if p < level {
            let (new, old) = (new.len(), old.len());
            found.push((
                gate,
                format!("{words} on {} with the new version than on {old} with the one before (rank-sum test, p = {p:.1e})", crate::hosts(new)),
            ));
        }
    }
    found
}

/// Machines that take the version and that do not. As with refusals half of the copies count that are there,
/// whichever of them speaks. All hosts count, however few of a large fleet are watched one by one: parts of
/// two samples that were drawn in different ways could not be compared.
struct Taking<'h> {
    /// Those that take it, and those that do not.
    all: usize,
    lacking: BTreeSet<&'h AgentId>,
    /// How many of these have had time enough.
    for_long: usize,
    /// What a host is called that lacks it.
    example: String,
}

impl<'h> Taking<'h> {
    fn of(rollout: &Rollout, soak: &Soak, hosts: &[Placed<'h>]) -> Self {
        let time = rollout.plan.soak;
        let lacks = |host: &&HostNow| soak.lacks(&host.id, time);
        let mut machines: BTreeMap<&AgentId, [usize; 3]> = BTreeMap::new();
        for host in given(hosts) {
            if lacks(&host) || host.connected && host.version == rollout.candidate {
                let for_long = lacks(&host) && soak.has_lacked(&host.id, time * PATIENCE);
                let [lacking, long, all] = machines.entry(&host.machine).or_default();
                *lacking += usize::from(lacks(&host));
                *long += usize::from(for_long);
                *all += 1;
            }
        }
        let all = machines.len();
        machines.retain(|_, [lacking, _, all]| *lacking * 2 >= *all);
        let for_long = machines.values().filter(|[_, long, all]| long * 2 >= *all).count();
        let example = given(hosts).filter(lacks).find(|host| machines.contains_key(&host.machine));
        let example = example.map(HostNow::called).unwrap_or_default();
        Self { all, lacking: machines.into_keys().collect(), for_long, example }
    }

    /// Whether so many of them are more than are slow at any time.
    fn are_many(&self, some: usize) -> bool {
        some as f64 > MISSING_USUAL * self.all as f64
    }
}

type Amount<'f> = &'f dyn Fn(&AgentId, &Track) -> Option<f64>;

/// What is to be said when the time is over.
fn end(rollout: &Rollout, soak: &Soak, hosts: &[Placed<'_>]) -> Judgement {
    let released = || given(hosts).filter(|host| host.speaks);
    if released().next().is_none() {
        let why = "none of its hosts is in the fleet any more, or what changed concerns none of them by now";
        return Judgement::Uncertain(why.to_owned());
    }
    let voting: BTreeSet<&AgentId> = soak.voting(rollout.plan.soak).map(|(id, _)| id).collect();
    let taking = Taking::of(rollout, soak, hosts);
    // A copy that has it may speak for a machine that does not take it.
    let votes = |host: &HostNow| voting.contains(&host.id) && !taking.lacking.contains(&host.machine);
    let is_seen = given(hosts).any(votes);
    let is_over = soak.watched() >= rollout.plan.soak * PATIENCE;
    let off = Off::of(rollout, hosts);
    let looks_lost = rollout.plan.gates.has(Gate::Lost) && off.looks_lost();
    let many_lack = taking.are_many(taking.lacking.len());
    if !is_seen || many_lack {
        // It reached them, and all of them went, beside others that are there: nobody waits for a weekend
        // to say so.
        let went = |host: &&HostNow| {
            !host.connected && (host.given == Some(true) || host.version == rollout.candidate)
        };
        if is_over && taking.all == 0 && given(hosts).filter(went).count() > 1 && looks_lost {
            return Judgement::Uncertain(off.why());
        }
        return match (is_over, many_lack) {
            (false, _) => Judgement::Watch,
            (true, true) if !taking.are_many(taking.for_long) => Judgement::Watch,
            (true, true) => Judgement::Uncertain(format!(
                "{} of {} that are there do not take the version, such as {}",
                taking.lacking.len(),
                crate::hosts(taking.all),
                taking.example
            )),
            (true, false) => coming(soak, rollout.plan.soak, soak.there(), &crate::hosts(released().count())),
        };
    }
    // Also those of which nothing was heard since they got it.
    if looks_lost {
        return Judgement::Uncertain(off.why());
    }
    let own = Own::of(rollout, soak, hosts);
    if let Err(said) = own.are_seen(rollout, soak, is_over) {
        return said;
    }
    let old = there(soak).filter(|track| !track.is_new).count();
    let cut_off = cut_off(soak);
    if rollout.plan.gates.has(Gate::CutOff) && old == 0 && cut_off.is_half_of_new() {
        return Judgement::Uncertain(format!(
            "a project is not reached by {}: with no host left to compare with, it may be the project's server",
            cut_off.said()
        ));
    }
    if let Some(why) = rest(rollout, soak).filter(|_| rollout.plan.gates.has(Gate::Offered)) {
        return Judgement::Uncertain(why);
    }
    // What a host did before is not known, either, of one that rested when it was given the version. Of one
    // whose owner took something away meanwhile it is not known what he and what the version took.
    let before = |id: &AgentId| soak.before(id).or_else(|| rollout.before.get(id).copied());
    let is_unseen =
        |(id, track): &(&AgentId, &Track)| track.rested() || track.is_tightened() || before(id).is_none();
    let (seen, nothing) = match soak.voting(rollout.plan.soak).filter(is_unseen).count() {
        0 => (String::new(), "nothing"),
        // They are asked for nothing while somebody uses them, or by their hours.
        unseen => {
            (format!(" (what it does to the computing of {unseen} of them was not seen)"), "nothing else")
        }
    };
    // Not that all of them had it as long as the wave was watched, through a night or a weekend.
    let least = soak.voting(rollout.plan.soak).map(|(_, track)| track.present()).min().unwrap_or_default();
    Judgement::Pass(format!(
        "{} with it for {least} at least, in {}{seen}{}, and {nothing} speaks against it beside {old} with the version before",
        crate::hosts(voting.len()),
        soak.watched(),
        own.said()
    ))
}

/// Whether hosts offer less than half of what they did, as they rest by pauses that the version makes more
/// likely. It may have been meant so, or they would rest without it as well: a day's hours do not show
/// which.
fn rest(rollout: &Rollout, soak: &Soak) -> Option<String> {
    let resting = |(_, track): &(&AgentId, &Track)| track.rested_by_version();
    let mut resting = soak.voting(rollout.plan.soak).filter(resting);
    let (_, first) = resting.next()?;
    let offered = Change::of(rollout, soak, Track::load_with_rest, |load| load.offered);
    offered.has_collapsed(0.0, 1).then(|| {
        format!(
            "{} rested, or had GPUs rest, such as {}, and the version makes that more likely: by what it says of \
             hours, machines in use, batteries, other programs, time without input, the wait after a start, disks \
             or layers of confinement. If it is meant so, promote it, else abort. Of their CPUs, if those that \
             rested count as none, {}",
            crate::hosts(1 + resting.count()),
            first.name,
            offered.said("could be used")
        )
    })
}

#[cfg(test)]
#[path = "judge_tests.rs"]
pub(crate) mod tests;
