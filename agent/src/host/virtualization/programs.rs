//! Which programs run other systems here, and their versions: Podman, Docker, VirtualBox (R6.2).
//!
//! Model: each is looked for in a few directories of the system and nowhere else, and asked for its version
//! once, at the start of the agent. A root agent executes it as root. So it, every directory on the way to it
//! and every link must be such that nobody but root and the agent's own user could have put it there. Who
//! does not answer in time is ended, with all that it has started, and is as if it were not there.
//!
//! Nothing is computed with them here. Whether jobs can use them follows from how jobs are confined.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fallow_domain::{ContainerEngine, ContainerEngineKind, Installed, Virtualization};
use rustix::fs::Access;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::name;
use crate::sys::{self, Urgency};

/// Where they are looked for.
const DIRS: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];
/// How a program reaches Docker.
const DOCKER_SOCKET: &str = "/var/run/docker.sock";
/// How long one has to say its version.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it takes to see that one which was killed has ended.
const END: Duration = Duration::from_secs(1);
/// Most of what it says that is read, in bytes.
const SAID_MAX: u64 = 4096;
/// Most links that are followed to it.
const LINKS_MAX: usize = 16;

/// Where programs are looked for, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The directories, the first one with it first.
    pub dirs: Vec<PathBuf>,
    /// Whether jobs are confined by nothing that keeps such programs from them.
    pub for_jobs: bool,
    /// How long each has to say its version.
    pub answer: Duration,
}

impl Programs {
    /// Those of this system.
    pub fn of_system(for_jobs: bool) -> Self {
        Self { dirs: DIRS.iter().map(PathBuf::from).collect(), for_jobs, answer: ANSWER }
    }

    /// Looks for them, and adds what is found to what is known.
    pub async fn look(&self, known: Virtualization) -> Virtualization {
        let podman = self.engine("podman").await;
        let engine = match podman {
            Some(podman) => Some(podman),
            None => self.engine("docker").await,
        };
        let said = self.said("VBoxManage").await;
        let virtualbox = said.and_then(|said| said.lines().find_map(version));
        let installed = |version| Installed { version, for_jobs: self.for_jobs };
        Virtualization { engine, virtualbox: virtualbox.map(installed), ..known }
    }

    async fn engine(&self, program: &str) -> Option<ContainerEngine> {
        let said = self.said(program).await?;
        let (kind, version) = engine(&said)?;
        // Docker computes in a process of its own, which not everybody may call.
        let reaches = || rustix::fs::access(DOCKER_SOCKET, Access::WRITE_OK).is_ok();
        let for_jobs = self.for_jobs && (kind == ContainerEngineKind::Podman || reaches());
        Some(ContainerEngine { kind, installed: Installed { version, for_jobs } })
    }

    /// What a program says when it is asked for its version.
    async fn said(&self, program: &str) -> Option<String> {
        let mut places = self.dirs.iter().map(|dir| dir.join(program)).filter(|path| path.exists());
        let path = places.find(|path| {
            let is_ours = is_ours(path);
            if !is_ours {
                tracing::info!(path = %path.display(), "not asked for its version: others than root may change it");
            }
            is_ours
        })?;
        let said = ask(&path, self.answer).await;
        if said.is_none() {
            tracing::info!(path = %path.display(), "did not say its version");
        }
        said
    }
}

/// Which engine says this of itself, and its version: `Docker version 24.0.7, build afdd53b`. What is called
/// `docker` may be Podman that passes for it.
fn engine(said: &str) -> Option<(ContainerEngineKind, String)> {
    said.lines().find_map(|line| {
        let (who, version) = line.split_once(" version ")?;
        let kind = match who.trim().to_ascii_lowercase().as_str() {
            "docker" => ContainerEngineKind::Docker,
            "podman" => ContainerEngineKind::Podman,
            _ => return None,
        };
        Some((kind, self::version(version)?))
    })
}

/// The version that a text begins with, such as `24.0.7`.
fn version(text: &str) -> Option<String> {
    let first = text.split([',', ' ', '\t']).next().and_then(name)?;
    first.starts_with(|c: char| c.is_ascii_digit()).then_some(first)
}

/// Executes a program for a moment, and gives what it says.
async fn ask(program: &Path, answer: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").env_clear().env("PATH", DIRS.join(":")).env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // In a session of its own, so that all that it starts can be ended.
    sys::isolate(&mut command, Urgency::Low, None);
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().ok()?;
    let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let mut said = Vec::new();
    let mut out = child.stdout.take()?.take(SAID_MAX);
    let heard = timeout(answer, out.read_to_end(&mut said)).await;
    // While it is not waited for, its number is nobody else's.
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = timeout(END, child.wait()).await;
    matches!(heard, Ok(Ok(_))).then(|| String::from_utf8_lossy(&said).into_owned())
}

/// Whether a program is one that nobody but root and the agent's own user can have put there: it, all
/// directories on the way to it and, where it is a link, all that the link leads through.
fn is_ours(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let Ok(dir) = dir.canonicalize() else { return false };
        let is_closed = |dir: &Path| fs::metadata(dir).is_ok_and(|dir| is_closed(&dir));
        if !dir.ancestors().all(is_closed) {
            return false;
        }
        path = dir.join(name);
        match (fs::symlink_metadata(&path), fs::read_link(&path)) {
            (Ok(link), Ok(leads_to)) if is_own(&link) => path = dir.join(leads_to),
            (Ok(file), Err(_)) => {
                let executable = file.is_file() && file.permissions().mode() & 0o111 != 0;
                return executable && is_closed_file(&file);
            }
            _ => return false,
        }
    }
    false
}

fn is_own(file: &Metadata) -> bool {
    file.uid() == 0 || file.uid() == rustix::process::geteuid().as_raw()
}

fn is_closed_file(file: &Metadata) -> bool {
    is_own(file) && file.mode() & 0o022 == 0
}

/// A directory in which nobody else can put anything in the place of what is ours. In one with the sticky
/// bit, such as `/tmp`, others can make files, but not take away ours.
fn is_closed(dir: &Metadata) -> bool {
    is_own(dir) && (dir.mode() & 0o022 == 0 || dir.mode() & 0o1000 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Instant;

    use super::*;

    /// A directory with programs of a test's own: shell scripts.
    fn with(programs: &[(&str, &str)]) -> (tempfile::TempDir, Programs) {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in programs {
            put(&dir.path().join(name), script);
        }
        let dirs = vec![dir.path().to_owned()];
        (dir, Programs { dirs, for_jobs: true, answer: Duration::from_secs(60) })
    }

    fn put(path: &Path, script: &str) {
        // Written by another process: one of ours that is being started may hold it open for writing.
        let write = format!("cat > '{0}' && chmod 755 '{0}'", path.display());
        let mut shell = Command::new("sh").args(["-c", &write]).stdin(Stdio::piped()).spawn().unwrap();
        let text = format!("#!/bin/sh\n{script}\n");
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    async fn found(programs: &Programs) -> Virtualization {
        programs.look(Virtualization::default()).await
    }

    #[tokio::test]
    async fn r6_2_programs_that_run_other_systems_are_found_with_their_versions() {
        let (_dir, programs) = with(&[
            ("docker", "echo 'Docker version 24.0.7, build afdd53b'"),
            ("VBoxManage", "echo 'WARNING: no vboxdrv'; echo 7.0.20r163906"),
        ]);
        let all = found(&programs).await;
        let docker = all.engine.unwrap();
        assert_eq!((docker.kind, docker.installed.version.as_str()), (ContainerEngineKind::Docker, "24.0.7"));
        let virtualbox = all.virtualbox.unwrap();
        assert_eq!(virtualbox, Installed { version: "7.0.20r163906".into(), for_jobs: true });
        // As Debian's podman-docker has it.
        let (_dir, programs) =
            with(&[("docker", "echo 'Emulate Docker CLI' >&2; echo podman version 4.9.3")]);
        let podman = found(&Programs { for_jobs: false, ..programs }).await.engine.unwrap();
        assert_eq!(podman.kind, ContainerEngineKind::Podman);
        assert_eq!(podman.installed, Installed { version: "4.9.3".into(), for_jobs: false });
    }

    #[tokio::test]
    async fn r6_2_a_program_that_hangs_floods_or_talks_nonsense_is_as_if_it_were_not_there() {
        let (dir, programs) = with(&[
            ("podman", "sleep 1000 & echo $! > \"$(dirname \"$0\")/pid\"; sleep 1000"),
            ("docker", "while :; do echo 'Docker version \u{1b}[2J'; done"),
            ("VBoxManage", "exit 1"),
        ]);
        let begun = Instant::now();
        let programs = Programs { answer: Duration::from_secs(2), ..programs };
        assert_eq!(found(&programs).await, Virtualization::default());
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        // What it had started has gone with it.
        let pid = fs::read_to_string(dir.path().join("pid")).unwrap().trim().to_owned();
        let is_there = || {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z")
        };
        while is_there() {
            assert!(begun.elapsed() < Duration::from_secs(60), "process {pid} is still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn r6_2_no_program_is_executed_that_others_could_have_put_there() {
        let traces = tempfile::tempdir().unwrap();
        let trace = traces.path().join("executed");
        let says = format!("touch '{}'; echo podman version 4.9.3", trace.display());
        let (dir, programs) = with(&[("podman", &says)]);
        let program = dir.path().join("podman");
        mode(&program, 0o775);
        assert_eq!(found(&programs).await.engine, None, "its group may write to it");
        mode(&program, 0o755);
        mode(dir.path(), 0o777);
        assert_eq!(found(&programs).await.engine, None, "anybody may put another one in its place");
        mode(dir.path(), 0o755);
        // A link to it from a good directory, through one that is not.
        let (good, through) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(&program, through.path().join("podman")).unwrap();
        symlink(through.path().join("podman"), good.path().join("podman")).unwrap();
        let linked = Programs { dirs: vec![good.path().to_owned()], ..programs.clone() };
        mode(through.path(), 0o777);
        assert_eq!(found(&linked).await.engine, None, "anybody may lead the link elsewhere");
        assert!(!trace.exists());
        mode(through.path(), 0o755);
        assert!(found(&linked).await.engine.is_some() && trace.exists());
        symlink("docker", good.path().join("docker")).unwrap();
        assert!(!is_ours(&good.path().join("docker")), "a link that leads to itself");
    }

    #[test]
    fn r6_2_only_a_version_is_taken_for_one() {
        for (said, known) in [
            ("Docker version 24.0.7, build 24.0.7-0ubuntu2~22.04.1\n", Some("24.0.7")),
            ("podman version 4.9.3", Some("4.9.3")),
            ("Podman version 5.0.0-rc1\n", Some("5.0.0-rc1")),
            ("Docker version", None),
            ("Docker version x", None),
            ("Docker version 1\u{1b}[2J", None),
            ("snap version 2.61", None),
            ("", None),
        ] {
            assert_eq!(engine(said).map(|(_, version)| version).as_deref(), known, "{said:?}");
        }
    }
}
