//! Sending workunits to a coordinator: in pieces, under a key, so that what was cut off is completed and
//! nothing is taken twice.
//!
//! **Model.** The whole is fingerprinted first, which also finds every input that cannot be read. A long
//! submission is then checked by the coordinator as a whole, so that a mistake in it stops it before any of
//! it is taken. Then its pieces are taken one after the other. Whatever dies in between, the same submission
//! under the same key adds what is missing: the coordinator knows how many it has. Memory holds what the
//! user typed and one piece; inputs that are files are read when their piece is sent. What hosts keep is
//! sent with the first workunit that reads it, and named by its fingerprint in all others.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fallow_boinc::runtime::slot_names::SlotNames;
use fallow_domain::{ExitCode, hex};
use fallow_proto::operator::v1::{InputFile, NewWorkunit, SubmitReply, SubmitRequest};
use fallow_work_server::{SUBMIT_ALL_MAX, SUBMIT_MAX};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use prost::Message as _;
use ring::digest::{Context, SHA256, digest};

use super::why::Why;
use super::{Client, Failure, bounded};

/// The most bytes that the inputs of a workunit have together: they are one message, with room for the rest
/// of it.
pub(crate) const INPUTS_MAX: u64 = 48 << 20;
/// A piece has about this many bytes at most, unless one workunit alone has more; how many workunits, the
/// coordinator says.
const PIECE_BYTES: u64 = 8 << 20;
/// How often a plain line tells of progress.
const LINES: Duration = Duration::from_secs(1);

/// A workunit to be sent: its inputs' contents apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingWorkunit {
    /// With the inputs' names, without their contents.
    workunit: NewWorkunit,
    contents: Vec<InputContent>,
}

/// What is in an input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputContent {
    source: Source,
    size: u64,
    sha256: [u8; 32],
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Held(Arc<[u8]>),
    /// Read again when it is sent.
    File(PathBuf),
}

/// Contents of files that were looked at: many workunits may read the same one.
#[derive(Default)]
pub(crate) struct InputContents(BTreeMap<PathBuf, InputContent>);

impl InputContent {
    pub(crate) fn held(bytes: &[u8]) -> Self {
        Self { source: Source::Held(bytes.into()), size: bytes.len() as u64, sha256: sha256(bytes) }
    }

    fn read(&self) -> Result<Vec<u8>, Failure> {
        let path = match &self.source {
            Source::Held(bytes) => return Ok(bytes.to_vec()),
            Source::File(path) => path,
        };
        let bytes = bounded::read("input", path, INPUTS_MAX)?;
        match sha256(&bytes) == self.sha256 {
            true => Ok(bytes),
            false => {
                Err(Failure::bad_input(format!("input {} changed while it was submitted", path.display())))
            }
        }
    }
}

impl InputContents {
    /// The content of a file. What is no regular file can be read once only, and is held.
    pub(crate) fn of_file(&mut self, path: &Path) -> Result<InputContent, Failure> {
        if let Some(known) = self.0.get(path) {
            return Ok(known.clone());
        }
        let bytes = bounded::read("input", path, INPUTS_MAX)?;
        let mut content = InputContent::held(&bytes);
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            content.source = Source::File(path.to_owned());
        }
        self.0.insert(path.to_owned(), content.clone());
        Ok(content)
    }
}

impl PendingWorkunit {
    /// A workunit and what is in its inputs, in their order.
    pub(crate) fn new(workunit: NewWorkunit, contents: Vec<InputContent>) -> Result<Self, Failure> {
        let mut places = SlotNames::default();
        let inputs = workunit.inputs.iter().map(|input| &input.open_name);
        let mut names = inputs.chain(workunit.outputs.iter().map(|output| &output.open_name));
        // The coordinator does the same, which knows the application's files as well; here all mistakes are
        // told at once.
        names.try_for_each(|name| places.add(name)).map_err(|clash| Failure::bad_input(clash.to_string()))?;
        let size: u64 = contents.iter().map(|content| content.size).sum();
        if size > INPUTS_MAX {
            let text = format!("its inputs have {size} bytes together: at most {INPUTS_MAX}");
            return Err(Failure::bad_input(text));
        }
        Ok(Self { workunit, contents })
    }

    /// Its name; empty if one is to be made.
    pub(crate) fn name(&self) -> &str {
        &self.workunit.name
    }

    /// Jobs of different accounts that must agree.
    pub(super) fn quorum(&self) -> u32 {
        self.workunit.quorum.max(1)
    }

    /// What hosts keep of its inputs: under which name, and the fingerprint of what.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, &[u8; 32])> {
        let inputs = self.workunit.inputs.iter().zip(&self.contents);
        let kept = inputs.filter(|(input, _)| !input.keep_as.is_empty());
        kept.map(|(input, content)| (input.keep_as.as_str(), &content.sha256))
    }

    /// As it is sent: `is_first` says whether what is kept under a name is sent with this workunit. A check
    /// needs no contents: what is kept must not be another file's name, and the fingerprint tells that.
    pub(super) fn whole(
        &self,
        check_only: bool,
        is_first: impl Fn(&str) -> bool,
    ) -> Result<NewWorkunit, Failure> {
        let mut workunit = self.workunit.clone();
        for (input, content) in workunit.inputs.iter_mut().zip(&self.contents) {
            let is_kept = !input.keep_as.is_empty();
            match () {
                () if is_kept && (check_only || !is_first(&input.keep_as)) => {
                    input.sha256 = hex(&content.sha256);
                }
                () if check_only => {}
                () => input.content = content.read()?,
            }
        }
        Ok(workunit)
    }

    /// Bytes that it takes to send it.
    fn size(&self, is_first: impl Fn(&str) -> bool) -> u64 {
        let inputs = self.workunit.inputs.iter().zip(&self.contents);
        let sent = inputs.filter(|(input, _)| input.keep_as.is_empty() || is_first(&input.keep_as));
        let contents: u64 = sent.map(|(_, content)| content.size).sum();
        contents + self.workunit.encoded_len() as u64
    }
}

impl From<NewWorkunit> for PendingWorkunit {
    fn from(mut workunit: NewWorkunit) -> Self {
        let take = |input: &mut InputFile| InputContent::held(&std::mem::take(&mut input.content));
        let contents = workunit.inputs.iter_mut().map(take).collect();
        Self { workunit, contents }
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().unwrap_or_default()
}

/// Fingerprint of a submission: the same workunits for the same project have the same.
pub(crate) fn fingerprint(project: &str, drafts: &[PendingWorkunit]) -> String {
    let mut hash = Context::new(&SHA256);
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    add(project.as_bytes());
    for draft in drafts {
        add(&draft.workunit.encode_to_vec());
        draft.contents.iter().for_each(|content| add(&content.sha256));
    }
    hex(hash.finish().as_ref())
}

/// Workunits on their way to a project.
pub(crate) struct Submission<'a> {
    pub(crate) project: &'a str,
    pub(crate) key: &'a str,
    pub(crate) drafts: &'a [PendingWorkunit],
    /// What to do after it was cut off.
    pub(crate) again: &'a str,
    /// Why, for the audit log.
    pub(crate) why: &'a Why,
}

/// What became of a submission.
#[derive(Default)]
pub(crate) struct SubmissionOutcome {
    /// Of all its workunits, in their order.
    pub(crate) names: Vec<String>,
    /// How many were there before.
    pub(crate) known: u64,
    /// When the first was taken.
    pub(crate) begun_at_micros: i64,
    /// Agents that are enrolled.
    pub(crate) agents: u64,
    /// Of these, those that count as one with others, because one's host is a copy of the other's.
    pub(crate) copied_agents: u64,
    /// Accounts outside the fleet that asked the project for work lately.
    pub(crate) accounts_outside: u64,
    /// Why no host has the project; empty where hosts have it.
    pub(crate) nobody_has_project: String,
}

/// How far a submission is, for whoever interrupts it.
#[derive(Default)]
pub(crate) struct SubmissionProgress {
    /// Workunits that the coordinator has taken.
    taken: Cell<usize>,
    /// Those of the piece that it may have taken meanwhile.
    under_way: Cell<usize>,
}

impl Submission<'_> {
    /// Sends it, with a bar or lines on standard error if it is long.
    pub(crate) async fn send(&self, client: &mut Client) -> Result<SubmissionOutcome, Failure> {
        self.send_watched(client, &SubmissionProgress::default()).await
    }

    /// Sends it, and says how far it is.
    pub(crate) async fn send_watched(
        &self,
        client: &mut Client,
        progress_so_far: &SubmissionProgress,
    ) -> Result<SubmissionOutcome, Failure> {
        let digest = fingerprint(self.project, self.drafts);
        let pieces = cut(self.drafts);
        let firsts = firsts(self.drafts);
        let progress = Progress::new(pieces.len() > 1, self.drafts.len());
        if pieces.len() > 1 {
            for piece in &pieces {
                self.piece(client, &digest, &firsts, piece, true).await?;
                progress.checked(piece.end);
            }
        }
        let mut sent = SubmissionOutcome {
            names: Vec::with_capacity(self.drafts.len()),
            ..SubmissionOutcome::default()
        };
        for piece in &pieces {
            progress_so_far.under_way.set(piece.len());
            let reply = self.piece(client, &digest, &firsts, piece, false).await;
            let reply = reply.map_err(|failure| self.cut_off(failure, sent.names.len(), piece.len()))?;
            sent.known += reply.known;
            sent.names.extend(reply.names);
            sent.begun_at_micros = reply.begun_at_micros;
            (sent.agents, sent.copied_agents) = (reply.agents, reply.copied_agents);
            sent.accounts_outside = reply.accounts_outside;
            sent.nobody_has_project = reply.nobody_has_project;
            progress_so_far.taken.set(sent.names.len());
            progress_so_far.under_way.set(0);
            progress.taken(sent.names.len());
        }
        Ok(sent)
    }

    async fn piece(
        &self,
        client: &mut Client,
        digest: &str,
        firsts: &BTreeMap<&str, usize>,
        piece: &Range<usize>,
        check_only: bool,
    ) -> Result<SubmitReply, Failure> {
        let drafts = self.drafts.iter().enumerate().take(piece.end).skip(piece.start);
        let workunits = drafts
            .map(|(at, draft)| draft.whole(check_only, |name| firsts.get(name) == Some(&at)))
            .collect::<Result<_, _>>()?;
        let request = SubmitRequest {
            project: self.project.to_owned(),
            workunits,
            key: self.key.to_owned(),
            digest: digest.to_owned(),
            total: self.drafts.len() as u64,
            offset: piece.start as u64,
            check_only,
        };
        Ok(client.submit(self.why.of(request)).await?.into_inner())
    }

    /// Says after Ctrl-C what is taken, and what to do about the rest.
    pub(crate) fn interrupted(&self, progress_so_far: &SubmissionProgress) -> String {
        let (total, key, again) = (self.drafts.len(), self.key, self.again);
        let what = match (progress_so_far.taken.get(), progress_so_far.under_way.get()) {
            (0, 0) => format!("none of {total} workunits is taken"),
            (taken, 0) => format!("{taken} of {total} workunits are taken"),
            (taken, more) => {
                format!("{taken} of {total} workunits are taken, perhaps {more} more that were on their way")
            }
        };
        format!(
            "interrupted: {what}: {again}, and what is missing is added, nothing twice (submission {key})"
        )
    }

    /// Says what is taken, and what to do about the rest. `more` were on their way.
    fn cut_off(&self, failure: Failure, taken: usize, more: usize) -> Failure {
        let (total, key, again) = (self.drafts.len(), self.key, self.again);
        let what = match (failure.code(), taken) {
            (ExitCode::Unreachable, 0) => "whether any of it was taken is not known".to_owned(),
            (_, 0) => return failure,
            (ExitCode::Unreachable, taken) => {
                format!("{taken} of {total} workunits are taken, perhaps {more} more that were on their way")
            }
            // A batch that is changed is another one.
            (ExitCode::BadInput, taken) => {
                let text = format!(
                    "{failure}; the first {taken} of {total} workunits are taken and stay: if the batch has to be changed, \
                     submit the others as a batch of their own; if not, {again} (submission {key})"
                );
                return Failure::new(ExitCode::BadInput, text);
            }
            (_, taken) => format!("{taken} of {total} workunits are taken"),
        };
        let text = format!(
            "{failure}; {what}: {again}, and what is missing is added, nothing twice (submission {key})"
        );
        Failure::new(failure.code(), text)
    }
}

/// The first workunit that reads what is kept under a name: its content is sent with that one alone.
fn firsts(drafts: &[PendingWorkunit]) -> BTreeMap<&str, usize> {
    let mut firsts = BTreeMap::new();
    for (at, draft) in drafts.iter().enumerate() {
        for (name, _) in draft.kept() {
            firsts.entry(name).or_insert(at);
        }
    }
    firsts
}

/// Where a submission is cut into pieces; none is empty.
fn cut(drafts: &[PendingWorkunit]) -> Vec<Range<usize>> {
    let firsts = firsts(drafts);
    let (mut pieces, mut start, mut bytes, mut all) = (Vec::new(), 0, 0, 0);
    for (at, draft) in drafts.iter().enumerate() {
        let size = draft.size(|name| firsts.get(name) == Some(&at));
        let workunit = &draft.workunit;
        let jobs = workunit.initial_jobs.max(workunit.quorum).max(1) as usize;
        let own = draft.contents.len() + workunit.outputs.len() + jobs;
        let is_full = at - start >= SUBMIT_MAX || bytes + size > PIECE_BYTES || all + own > SUBMIT_ALL_MAX;
        if at > start && is_full {
            pieces.push(start..at);
            (start, bytes, all) = (at, 0, 0);
        }
        bytes += size;
        all += own;
    }
    pieces.push(start..drafts.len());
    pieces
}

/// A bar on a terminal, a plain line now and then elsewhere; both on standard error, and for long
/// submissions only.
struct Progress {
    bar: Option<ProgressBar>,
    lines: Option<Cell<Instant>>,
    total: usize,
    /// When checking began, then taking.
    began: Cell<Instant>,
}

impl Progress {
    fn new(is_long: bool, total: usize) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = (is_long && is_terminal).then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(10);
            let bar = ProgressBar::with_draw_target(Some(total as u64), target);
            // No colours: NO_COLOR has nothing to take away.
            if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} workunits{msg}") {
                bar.set_style(style);
            }
            bar.set_prefix("checked");
            bar
        });
        let lines = (is_long && !is_terminal).then(|| Cell::new(Instant::now()));
        Self { bar, lines, total, began: Cell::new(Instant::now()) }
    }

    fn checked(&self, count: usize) {
        self.tell("checked", count);
        if let Some(bar) = self.bar.as_ref().filter(|_| count == self.total) {
            bar.reset();
            self.began.set(Instant::now());
        }
    }

    fn taken(&self, count: usize) {
        self.tell("taken", count);
    }

    fn tell(&self, what: &'static str, count: usize) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(what);
            bar.set_message(left(self.began.get().elapsed(), count, self.total));
            bar.set_position(count as u64);
        }
        if let Some(last) = self.lines.as_ref().filter(|last| last.get().elapsed() >= LINES) {
            last.set(Instant::now());
            // Nobody is told when nobody reads it.
            let _ = writeln!(std::io::stderr(), "fallow: {count} of {} workunits {what}", self.total);
        }
    }
}

/// How long the rest takes if it goes on as so far; nothing before anything is known, and at the end.
fn left(elapsed: Duration, done: usize, total: usize) -> String {
    if done == 0 || done >= total {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (total - done) as f64 / done as f64;
    let left = Duration::from_secs(seconds.ceil().max(1.0) as u64);
    format!(", about {} left", humantime::format_duration(left))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use fallow_proto::operator::v1::OutputFile;

    use super::*;

    fn draft(input: &[u8]) -> PendingWorkunit {
        let input = InputFile { open_name: "in".into(), content: input.to_vec(), ..Default::default() };
        NewWorkunit { application: "a".into(), inputs: vec![input], ..Default::default() }.into()
    }

    #[test]
    fn a_long_submission_is_cut_by_number_and_by_size_and_nothing_is_left_out() {
        assert_eq!(cut(&vec![draft(b"x"); 2_400]), [0..1_000, 1_000..2_000, 2_000..2_400]);
        let large = draft(&vec![0; PIECE_BYTES as usize / 2]);
        assert_eq!(cut(&vec![large; 3]), [0..1, 1..2, 2..3]);
        let larger = draft(&vec![0; PIECE_BYTES as usize * 2]);
        assert_eq!(cut(&[draft(b""), larger, draft(b"")]), [0..1, 1..2, 2..3]);
        let of_many = [
            NewWorkunit { inputs: vec![InputFile::default(); 100], ..Default::default() },
            NewWorkunit { outputs: vec![OutputFile::default(); 100], ..Default::default() },
            NewWorkunit { initial_jobs: 101, ..Default::default() },
            NewWorkunit { quorum: 101, ..Default::default() },
        ];
        for workunit in of_many {
            // One job, or a hundred of each.
            assert_eq!(cut(&vec![workunit.into(); 80]), [0..49, 49..80]);
        }
    }

    /// Shows R6.8.
    #[test]
    fn what_many_workunits_keep_is_sent_with_the_first_of_them_and_named_by_its_fingerprint_in_the_others() {
        let bytes = vec![7; PIECE_BYTES as usize / 2];
        let mut drafts = vec![draft(&bytes); 1_000];
        for draft in &mut drafts {
            draft.workunit.inputs[0].keep_as = "data".into();
        }
        let all = 0..drafts.len();
        assert_eq!(cut(&drafts), [all]);
        let firsts = firsts(&drafts);
        let sent = |check_only| -> Vec<NewWorkunit> {
            let drafts = drafts.iter().enumerate();
            drafts.map(|(at, one)| one.whole(check_only, |name| firsts[name] == at).unwrap()).collect()
        };
        let bytes_sent = |workunits: &[NewWorkunit]| -> usize {
            workunits.iter().map(|workunit| workunit.inputs[0].content.len()).sum()
        };
        let taken = sent(false);
        assert_eq!((bytes_sent(&taken), taken[0].inputs[0].content.len()), (bytes.len(), bytes.len()));
        assert_eq!(bytes_sent(&sent(true)), 0);
        assert_eq!(taken[0].inputs[0].sha256, "");
        assert!(taken[1..].iter().all(|one| one.inputs[0].sha256 == hex(&sha256(&bytes))));
    }

    #[test]
    fn the_same_work_for_the_same_project_has_the_same_fingerprint_and_any_other_another() {
        let of = |project, input: &[u8]| fingerprint(project, &[draft(input)]);
        assert_eq!(of("p", b"x"), of("p", b"x"));
        assert_ne!(of("p", b"x"), of("p", b"y"));
        assert_ne!(of("p", b"x"), of("q", b"x"));
        assert_ne!(fingerprint("p", &[draft(b"x"), draft(b"x")]), of("p", b"x"));
    }

    #[test]
    fn nothing_is_said_of_the_time_left_before_anything_is_known() {
        let after = |seconds, done| left(Duration::from_secs(seconds), done, 10_000);
        assert_eq!([after(3, 0), after(3, 10_000)], ["", ""]);
        assert_eq!(after(2, 2_500), ", about 6s left");
        assert_eq!(left(Duration::from_millis(9), 7_500, 10_000), ", about 1s left");
    }

    #[test]
    fn what_is_refused_says_what_is_taken_and_whether_to_repeat_the_command() {
        let drafts = vec![draft(b"x"); 10_000];
        let why = Why::default();
        let submission =
            Submission { project: "p", key: "k", drafts: &drafts, again: "repeat it", why: &why };
        let said = |code, taken| submission.cut_off(Failure::new(code, "no"), taken, 2_500).to_string();
        let table = [
            (ExitCode::BadInput, 0, "no"),
            (ExitCode::Unreachable, 0, "no; whether any of it was taken is not known: repeat it"),
            (
                ExitCode::Unreachable,
                5_000,
                "no; 5000 of 10000 workunits are taken, perhaps 2500 more that were",
            ),
            (ExitCode::NoSpace, 5_000, "no; 5000 of 10000 workunits are taken: repeat it"),
            (
                ExitCode::BadInput,
                5_000,
                "no; the first 5000 of 10000 workunits are taken and stay: if the batch has to be changed",
            ),
        ];
        for (code, taken, text) in table {
            let said = said(code, taken);
            assert!(said.starts_with(text), "{said}");
            assert_eq!(said.contains("repeat"), text != "no", "{said}");
        }
    }

    #[test]
    fn an_interruption_says_what_is_taken_and_how_the_rest_comes() {
        let drafts = vec![draft(b"x"); 10_000];
        let why = Why::default();
        let again = "repeat the command";
        let submission = Submission { project: "p", key: "k", drafts: &drafts, again, why: &why };
        let said = |taken, under_way| {
            let progress_so_far =
                SubmissionProgress { taken: Cell::new(taken), under_way: Cell::new(under_way) };
            submission.interrupted(&progress_so_far)
        };
        let end = ": repeat the command, and what is missing is added, nothing twice (submission k)";
        assert_eq!(said(0, 0), format!("interrupted: none of 10000 workunits is taken{end}"));
        assert_eq!(said(5_000, 0), format!("interrupted: 5000 of 10000 workunits are taken{end}"));
        assert!(said(5_000, 2_500).contains("5000 of 10000 workunits are taken, perhaps 2500 more"));
    }

    #[test]
    fn an_input_that_changed_since_it_was_looked_at_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one").unwrap();
        let content = InputContents::default().of_file(file.path()).unwrap();
        assert_eq!(content.read().unwrap(), b"one");
        std::fs::write(file.path(), "two").unwrap();
        assert!(content.read().unwrap_err().to_string().contains("changed while it was submitted"));
    }
}
