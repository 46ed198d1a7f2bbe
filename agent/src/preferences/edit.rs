//! `fallow-agent preferences check` and `edit`: the owner's file is read before it counts.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process::Command;

use fallow_daemon::file;
use fallow_domain::ExitCode;
use fallow_domain::printable::shell_path;
use fallow_preferences::{Origin, Outdone, OwnerFile, Source, in_force, template};

use super::{OWNER_FILE, content};
use crate::control::client::ask;
use crate::control::preferences::no_limits;
use crate::control::protocol::Request;
use crate::dir::DataDir;
use crate::error::AgentError;

/// Anybody may read what the owner says; nothing in it is secret.
const MODE: u32 = 0o644;

/// The template of an owner's file.
pub fn give_template() -> String {
    template().trim_end().to_owned()
}

/// Checks a file. Says what it limits.
///
/// # Errors
/// [`AgentError::BadInput`] with everything that is wrong, or when it cannot be read.
pub fn check(path: &Path) -> Result<String, AgentError> {
    let file = read(path)?;
    let (limits, notes) = (limits(&file), notes(&file));
    let mut text = match limits.is_empty() {
        true => format!("{}: nothing is wrong, and nothing is limited", path.display()),
        false => format!("{}: nothing is wrong; it limits {}", path.display(), limits.join(", ")),
    };
    for note in notes {
        let _ = write!(text, "\n{note}");
    }
    Ok(text)
}

/// The keys by which a file limits something.
fn limits(file: &OwnerFile) -> Vec<&'static str> {
    let all = in_force(&[Source::limits(Origin::OwnerFile, file.0.clone())]);
    let is_loose = |key: &str| {
        let entry = all.entries.iter().find(|entry| entry.key == key);
        entry.is_some_and(|entry| entry.others.iter().any(|other| other.why == Outdone::WouldLoosen))
    };
    file.0.lines.keys().copied().filter(|key| !is_loose(key)).collect()
}

/// What its owner may not have meant by it, a line for each.
fn notes(file: &OwnerFile) -> Vec<String> {
    let all = in_force(&[Source::limits(Origin::OwnerFile, file.0.clone())]);
    no_limits(file).into_iter().chain(all.values.cautions()).collect()
}

fn read(path: &Path) -> Result<OwnerFile, AgentError> {
    let bad = |why: String| AgentError::bad_input(format!("cannot read {}: {why}", path.display()));
    let content = content(path).map_err(|error| bad(error.to_string()))?;
    let content = content.ok_or_else(|| bad("there is no such file".to_owned()))?;
    let text = String::from_utf8(content).map_err(|error| bad(format!("it is no text: {error}")))?;
    OwnerFile::read(&path.display().to_string(), &text)
        .map_err(|found| AgentError::bad_input(found.to_string()))
}

/// Opens an editor on a copy of the owner's file, checks what comes of it, puts it in the file's place and
/// has the running agent take it.
///
/// # Errors
/// [`AgentError`]: the editor failed, what it left is wrong, or it cannot be put in place.
pub fn edit(dir: &DataDir) -> Result<String, AgentError> {
    let target = dir.path().join(OWNER_FILE);
    let before = before(dir, &target)?;
    let copy = Copy::make(&target, before.as_deref().unwrap_or(template().as_bytes()))?;
    let file = loop {
        run_editor(&copy.0)?;
        match read(&copy.0) {
            Ok(file) => break file,
            Err(error) if !again(&error) => {
                let kept = copy.keep();
                let (shown, word) = (kept.display(), shell_path(&kept));
                let what = format!(
                    "nothing was changed.\n{error}\nwhat you wrote is in {shown}: mend it there until `fallow-agent preferences check \
                     {word}` finds nothing, and put it into the next `fallow-agent preferences edit`"
                );
                return Err(AgentError::bad_input(what));
            }
            Err(_) => {}
        }
    };
    let after = content(&copy.0).ok().flatten().unwrap_or_default();
    if before.as_ref() == Some(&after) || (before.is_none() && after == template().as_bytes()) {
        return Ok("nothing was changed".to_owned());
    }
    if let Err(error) = put(dir, &target, &after) {
        let kept = copy.keep();
        let why = fallow_daemon::causes::line(&error);
        let what = format!("{why}; nothing was changed, and what you wrote is in {}", kept.display());
        return Err(match error.exit_code() {
            ExitCode::NoSpace => AgentError::no_space(what),
            _ => AgentError::bad_input(what),
        });
    }
    match ask(dir, &Request::ReloadPreferences {}) {
        Ok((text, _)) => Ok(text),
        Err(AgentError::Unreachable { .. }) => {
            let mut text = format!("{} holds once the agent is started: none runs now", target.display());
            for note in notes(&file) {
                let _ = write!(text, "\n{note}");
            }
            Ok(text)
        }
        Err(error) => Err(error),
    }
}

/// What stands in the file now.
fn before(dir: &DataDir, target: &Path) -> Result<Option<Vec<u8>>, AgentError> {
    let shown = dir.path().display();
    let not_yours = || {
        AgentError::refused(format!(
            "{shown} is another user's: edit its preferences as the user that the agent runs as, or as root"
        ))
    };
    let user = rustix::process::geteuid();
    match fs::metadata(dir.path()) {
        Ok(data) if data.is_dir() && (user.is_root() || data.uid() == user.as_raw()) => {}
        Ok(data) if data.is_dir() => return Err(not_yours()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(not_yours()),
        _ => {
            return Err(AgentError::bad_input(format!(
                "there is no directory {shown}: start the agent once, or name its directory with --dir"
            )));
        }
    }
    dir.check_owner()?;
    let bad = |why: String| AgentError::bad_input(format!("cannot edit {}: {why}", target.display()));
    match fs::symlink_metadata(target) {
        Ok(data) if data.is_symlink() => Err(bad(
            "it is a link: edit the file it leads to, and then run `fallow-agent preferences reload`"
                .to_owned(),
        )),
        _ => content(target).map_err(|error| bad(error.to_string())),
    }
}

/// The copy that is edited, which goes when this does.
struct Copy(PathBuf);

impl Copy {
    fn make(target: &Path, text: &[u8]) -> Result<Self, AgentError> {
        let path = std::env::temp_dir().join(format!("fallow-preferences-{}.toml", std::process::id()));
        let fail = |error| AgentError::system(format!("cannot make {}", path.display()), error);
        // New, so that nobody has it who might put something else in its place.
        let _ = fs::remove_file(&path);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(fail)?;
        file.write_all(text).map_err(fail)?;
        tracing::debug!(target = %target.display(), copy = %path.display(), "editing a copy");
        Ok(Self(path))
    }

    /// It stays.
    fn keep(self) -> PathBuf {
        let path = self.0.clone();
        std::mem::forget(self);
        path
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the owner's editor, as a shell would: it may have arguments.
fn run_editor(path: &Path) -> Result<(), AgentError> {
    let named = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let status =
        Command::new("/bin/sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(AgentError::bad_input(format!(
            "the editor ({editor}) ended with {status}: nothing was changed; name another one in EDITOR"
        ))),
        Err(error) => Err(AgentError::system(format!("cannot start the editor ({editor})"), error)),
    }
}

/// Whether the owner wants to mend what is wrong; nobody is asked where no terminal is.
fn again(error: &AgentError) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    let _ = write!(std::io::stderr(), "{error}\nedit again? [Y/n] ");
    let mut answer = [0; 64];
    let length = std::io::stdin().read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..length]).trim().to_lowercase();
    length > 0 && !answer.starts_with('n')
}

/// Puts the new content in the file's place, as a file of the agent's user.
fn put(dir: &DataDir, target: &Path, text: &[u8]) -> Result<(), AgentError> {
    let fail = |error| AgentError::system(format!("cannot write {}", target.display()), error);
    file::write_whole(target, text, MODE).map_err(fail)?;
    if rustix::process::geteuid().is_root() {
        let owner = fs::metadata(dir.path()).map_err(fail)?;
        let written = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(target)
            .map_err(fail)?;
        fchown(&written, Some(owner.uid()), Some(owner.gid())).map_err(fail)?;
    }
    Ok(())
}
