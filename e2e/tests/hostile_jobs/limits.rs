//! Jobs that want more than they may have, or will not go: each with the end that it has to come to.

/// How a job ends, as its project sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// It has its output, and what else it did is gone with it.
    Success,
    /// It failed with this exit status, and this is said of it.
    Failed(i32, &'static str),
    /// It goes on until its agent ends.
    GoesOn,
}

/// What a job does, by name; its script, and its end. `TOKEN` is in the command line of whatever it starts;
/// `OWNER` and `PRLIMIT` stand for what they do in attacks.
pub(crate) struct Greed(pub(crate) &'static str, pub(crate) &'static str, pub(crate) End);

use End::{Failed, GoesOn, Success};

/// What such a job may have on the disk.
pub(crate) const DISK: &str = "2 MB";
/// What jobs may have of the memory.
pub(crate) const MEMORY: u64 = 640 << 20;
/// The number of the one whose agent lets jobs have all memory: what processes have in common counts for
/// each of them, and there are to be too many before it is too much.
pub(crate) const FORKS: usize = 0;
/// The number of the one that is found out twice.
pub(crate) const UNHEEDING: usize = 4;

pub(crate) const GREEDS: &[Greed] = &[
    Greed(
        "forks without end",
        // Twice as many each half second: what is there before it is looked at is not more than the machine
        // bears, nor than leaves a few processes to other agents of the same user.
        "exec perl -e 'for (1..12) { fork; select undef, undef, undef, 0.5 } sleep 1000' TOKEN",
        Failed(194, "processes"),
    ),
    Greed(
        "takes memory without end",
        "exec perl -e 'while (1) { $x .= \"x\" x 20_000_000; select undef, undef, undef, 0.05 }' TOKEN",
        Failed(198, "memory"),
    ),
    Greed(
        "takes memory by many processes, and in sessions of their own",
        "exec perl -MPOSIX -e 'for (1..40) { fork or do { POSIX::setsid(); $x = \"x\" x (20_000_000 + $_); sleep 1000 }; \
         select undef, undef, undef, 0.1 } sleep 1000' TOKEN",
        Failed(198, "memory"),
    ),
    Greed(
        "makes a file of 1 TB with nothing in it",
        "exec perl -e 'open F, \">\", \"f\"; truncate F, 1 << 40; sleep 1000' TOKEN",
        Failed(196, "disk"),
    ),
    Greed(
        "fills its slot, and takes memory without end when it is told to go",
        // It says how far it is: who never says anything is not waited for.
        "printf '<current_cpu_time>1</current_cpu_time>\\n<checkpoint_cpu_time>0</checkpoint_cpu_time>\\n\\000' | \
         dd of=boinc_mmap_file bs=1 seek=5121 conv=notrunc 2>/dev/null; \
         printf '\\001' | dd of=boinc_mmap_file bs=1 seek=5120 conv=notrunc 2>/dev/null; \
         perl -e 'for (1..15) { open F, \">\", $_; print F \"x\" x 20_000_000; select undef, undef, undef, 0.2 }' TOKEN; \
         until grep -aq '<abort/>' boinc_mmap_file; do sleep 0.2; done; rm -f [0-9]*; \
         exec perl -e '$SIG{$_} = \"IGNORE\" for qw(TERM INT HUP QUIT); $n = 1e9; $x = \"x\" x $n; sleep 1000' TOKEN",
        Failed(196, "disk"),
    ),
    Greed(
        "writes to standard error without end",
        "perl -e 'for (1..150) { print STDERR \"x\" x 2_000_000; select undef, undef, undef, 0.02 }' TOKEN; \
         until grep -aq '<abort/>' boinc_mmap_file; do sleep 0.2; done",
        Failed(196, "disk"),
    ),
    Greed(
        "leaves daemons: sessions of their own, forked twice, without environment, with other names",
        "for n in 1 2 3; do setsid env -i perl -e '$SIG{TERM} = \"IGNORE\"; fork and exit; \
         my $less = pack(\"QQ\", 5, 5); syscall(PRLIMIT, 0, 10, $less, 0); chdir \"/\"; $0 = \"kworker/0:1 TOKEN\"; sleep 1000' & done; \
         sleep 2; echo right >\"$out\"",
        Success,
    ),
    Greed("deletes its slot", "rm -rf \"$PWD\" ./*; exit 3", Failed(3, "")),
    Greed(
        "cuts its channel to the agent short, again and again",
        "perl -e 'open F, \"+<\", \"boinc_mmap_file\"; for (1..20_000) { truncate F, 0; truncate F, 8192 }'; \
         echo right >\"$out\"",
        Success,
    ),
    Greed("has its output lead out by a link", "ln -s OWNER/letter \"$out\"", Failed(-161, "")),
    Greed("makes its output a hard link to the owner's file", "ln OWNER/letter \"$out\"", Failed(-161, "")),
    Greed("makes its output a pipe", "mkfifo \"$out\"", Failed(-161, "")),
    Greed(
        "ignores SIGTERM and whatever it is told",
        "trap '' TERM INT HUP QUIT; while :; do perl -e 'sleep 1' TOKEN; done",
        GoesOn,
    ),
];
