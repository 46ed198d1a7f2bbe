//! Jobs that want more than they may have, or will not go: each with the end that it has to come to.

/// How a job ends, as its project sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// It has its output, and what else it did is gone with it.
    Success,
    /// It has its output, and something that it started goes on.
    Outlived,
    /// What its project gets is not what it wrote.
    Foreign,
    /// It failed with this exit status, and the reason names this.
    Failed(i32, &'static str),
    /// It goes on until its agent ends.
    GoesOn,
}

/// What a job does, by name; its script, and its end with all layers. `TOKEN` is in the command line of
/// whatever it starts; `FORKS` are some more processes than a job may have; `OWNER` and `PRLIMIT` stand for
/// what they do in attacks.
pub(crate) struct Greed(pub(crate) &'static str, pub(crate) &'static str, pub(crate) End);

use End::{Failed, GoesOn, Success};

/// What such a job may have on the disk.
pub(crate) const DISK: &str = "2 MB";
/// What jobs may have of the memory, once those of their agent have ended that fork.
pub(crate) const MEMORY: u64 = 256 << 20;
/// The number of the one that forks. What processes have in common counts for each of them, so its agent
/// lets jobs have all memory: there are to be too many before it is too much.
pub(crate) const FORKS: usize = 0;
/// The number of the one that is found out twice.
pub(crate) const UNHEEDING: usize = 4;
/// The number of the one whose daemons take off what they are known by.
pub(crate) const DAEMONS: usize = 6;
/// Those that take what the machine has little of: they wait until they are let, and go in this order.
pub(crate) const IN_TURN: [usize; 4] = [FORKS, 1, 2, UNHEEDING];

/// What by word stands in the reason that the project of a failed job is told.
pub(crate) const REASONS: [(&str, &str); 3] =
    [("processes", "processes and threads"), ("memory", "working set"), ("disk", "its files")];

/// All of them are bounded, for some run where nothing but the agent's look each second holds them: they come
/// to some more than they may have, bit by bit, and wait there for what comes of it.
pub(crate) const GREEDS: &[Greed] = &[
    Greed(
        "forks without end",
        "exec perl -e 'for (1..FORKS) { fork or do { sleep 1000; exit }; \
         select undef, undef, undef, 0.1 unless $_ % 100 } sleep 1000' TOKEN",
        Failed(194, "processes"),
    ),
    Greed(
        "takes memory without end",
        "exec perl -e 'for (1..50) { $x .= \"x\" x 10_000_000; select undef, undef, undef, 0.05 } sleep 1000' TOKEN",
        Failed(198, "memory"),
    ),
    Greed(
        "takes memory by many processes, and in sessions of their own",
        "exec perl -MPOSIX -e 'for (1..30) { fork or do { POSIX::setsid(); $x = \"x\" x (16_000_000 + $_); sleep 1000; exit }; \
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
        // It says how far it is: who never says anything is not waited for. It takes blocks without writing
        // them, and so many that files are counted at once.
        "printf '<current_cpu_time>1</current_cpu_time>\\n<checkpoint_cpu_time>0</checkpoint_cpu_time>\\n\\000' | \
         dd of=boinc_mmap_file bs=1 seek=5121 conv=notrunc 2>/dev/null; \
         printf '\\001' | dd of=boinc_mmap_file bs=1 seek=5120 conv=notrunc 2>/dev/null; \
         fallocate -l 300M f; until grep -aq '<abort/>' boinc_mmap_file; do sleep 0.2; done; rm -f f; \
         exec perl -e '$SIG{$_} = \"IGNORE\" for qw(TERM INT HUP QUIT); \
         for (1..25) { $x .= \"x\" x 20_000_000; select undef, undef, undef, 0.1 } sleep 1000' TOKEN",
        Failed(196, "disk"),
    ),
    Greed(
        "writes to standard error without end",
        "perl -e 'for (1..20) { print STDERR \"x\" x 2_000_000; select undef, undef, undef, 0.02 }' TOKEN; \
         until grep -aq '<abort/>' boinc_mmap_file; do sleep 1; done",
        Failed(196, "disk"),
    ),
    Greed(
        "leaves daemons: sessions of their own, forked twice, without environment, with other names",
        // At different times: a look may find some of them just as they come off their job.
        "for n in 1 2 3; do setsid env -i perl -e '$SIG{TERM} = \"IGNORE\"; fork and exit; \
         my $less = pack(\"QQ\", 5, 5); syscall(PRLIMIT, 0, 10, $less, 0); chdir \"/\"; \
         $0 = \"kworker/\\xff:1 TOKEN\"; sleep 1000' & sleep 0.4; done; \
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
