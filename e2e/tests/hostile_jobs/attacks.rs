//! What hostile jobs try: each by its name, and a script that succeeds if the job could do it.
//!
//! In a script stand for themselves: `DIR` (the agent's directory), `OWNER` (files of somebody's own), `OWN`
//! and `OTHER` (directories of the job's own project and of the neighbour's), `PROGRAM` (the neighbour's),
//! `SLOT` (the neighbour's), `PID` (its process), `AGENT`, `TCP` and `UDP` (ports of this machine),
//! `ABSTRACT` (a socket's name), `COMMON` and `MEMORY` (files of all users), `PTRACE`, `PRLIMIT`, `PRCTL`
//! and `SETTIME` (numbers of calls). What an attack changes that others need, it puts back.

/// Who could do it, were no layer in its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Who {
    Anybody,
    Root,
    Ordinary,
    /// Anybody, unless this system keeps from it by other means of its own: it is shown only that no job can
    /// that has all layers.
    Perhaps,
    /// Anybody's jobs, but for those of root's agents, whom these layers together keep from it.
    Always(&'static [&'static str]),
}
use Who::{Always, Anybody, Ordinary, Perhaps, Root};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack(pub(crate) &'static str, pub(crate) Who, pub(crate) &'static str);

pub(crate) const ATTACKS: &[Attack] = &[
    Attack("reads `/etc/shadow`", Root, "grep -q root /etc/shadow"),
    Attack("reads the agent's identity", Anybody, "head -c 1 DIR/identity.key | grep -q ."),
    Attack("reads the agent's records", Anybody, "cat DIR/store/* | head -c 1 | grep -qa ."),
    Attack("lists the agent's directory", Anybody, "ls ../.. | grep -q store"),
    Attack("reads another slot", Anybody, "grep -q app_init_data ../SLOT/init_data.xml"),
    Attack(
        "spoils the memory that a neighbour shares with the agent",
        Anybody,
        "perl -e 'open F, \"+<\", \"../SLOT/boinc_mmap_file\" or exit 1; seek F, 8000, 0; exit !print F \"x\"'",
    ),
    Attack("reads another project's files", Anybody, "grep -q bin/sh ../../projects/OTHER/PROGRAM"),
    Attack("changes another project's program", Anybody, "echo '# evil' >>../../projects/OTHER/PROGRAM"),
    Attack("changes a file of its own project", Anybody, "echo '# evil' >>\"$in\""),
    Attack(
        "makes a file in its own project's directory",
        Anybody,
        "f=../../projects/OWN/new; echo >$f && rm $f",
    ),
    Attack(
        "puts another file in the place of its output",
        Anybody,
        "f=../../projects/OWN/${out##*/}; echo evil >$f && rm $f",
    ),
    Attack("takes another slot away", Anybody, "mv ../SLOT ../99 && mv ../99 ../SLOT"),
    Attack(
        "writes over its slot's record",
        Anybody,
        "r=../${PWD##*/}.json; cat $r >r && echo evil >$r && cat r >$r",
    ),
    Attack("reads the owner's home", Anybody, "grep -q precious OWNER/letter"),
    Attack("reads it through a link", Anybody, "ln -s OWNER/letter l && grep -q precious l"),
    Attack("writes through a link", Anybody, "ln -s OWNER/letter l && echo evil >>l"),
    Attack("makes a hard link to the owner's file", Perhaps, "ln OWNER/letter h"),
    Attack(
        "cuts the owner's file short",
        Anybody,
        "perl -e 'exit !(truncate(\"OWNER/long\", 0) && -z \"OWNER/long\")'",
    ),
    Attack("removes the owner's file", Anybody, "rm OWNER/short"),
    Attack("changes the mode of the owner's file", Always(&["user"]), "chmod 600 OWNER/mode"),
    Attack("changes the times of the owner's file", Always(&["user"]), "touch -d @0 OWNER/mode"),
    Attack("writes into everybody's file in `/tmp`", Anybody, "[ -f COMMON ] && echo evil >>COMMON"),
    Attack("reads everybody's memory in `/dev/shm`", Perhaps, "grep -q common MEMORY"),
    Attack("sees processes of others", Always(&["user", "tmp"]), "[ -e /proc/AGENT ]"),
    Attack("reads the environment of a neighbour", Anybody, "grep -q FALLOW /proc/PID/environ"),
    Attack("reads the memory of a neighbour", Perhaps, ": </proc/PID/mem"),
    Attack("enters the directory of a neighbour", Perhaps, "ls /proc/PID/cwd/ | grep -q init_data"),
    Attack("reads the memory of the agent", Perhaps, ": </proc/AGENT/mem"),
    Attack("traces a neighbour", Perhaps, "perl -e 'exit !(syscall(PTRACE, 16, PID, 0, 0) == 0)'"),
    Attack("sends the agent a signal", Anybody, "kill -CONT AGENT"),
    Attack(
        "takes off the number it is known by",
        Anybody,
        "perl -e 'my $less = pack(\"QQ\", 5, 5); exit !(syscall(PRLIMIT, 0, 10, $less, 0) == 0)'",
    ),
    // Whoever reads its environment would read all of its memory. The size of what it can say of that is
    // asked for.
    Attack(
        "says where in its memory its environment is",
        Perhaps,
        "perl -e 'my $size = pack(\"L\", 0); exit !(syscall(PRCTL, 35, 15, $size, 0, 0) == 0)'",
    ),
    Attack("limits a neighbour", Anybody, "prlimit --pid PID --nofile=500:500"),
    Attack("limits the agent's CPU time", Anybody, "prlimit --pid AGENT --cpu=1000000:"),
    Attack("makes a neighbour wait", Anybody, "renice -n 19 -p PID"),
    Attack("has a neighbour wait for the disk", Anybody, "ionice -c 3 -p PID"),
    Attack("has a neighbour run when nobody else does", Anybody, "chrt --idle -p 0 PID"),
    Attack("chooses the CPUs of a neighbour", Always(&["user"]), "taskset -pc 0 PID"),
    Attack("makes a program that runs as its owner", Anybody, "cp /bin/true t && chmod 4755 t && test -u t"),
    Attack(
        "has whoever opens a file wait",
        Anybody,
        "in=$in perl -e 'open F, \"<\", $ENV{in} or exit 1; exit !fcntl(F, 1024, 0)'",
    ),
    Attack("keeps memory when it is gone", Anybody, "id=$(ipcmk -M 4096) && ipcrm -m ${id##*: }"),
    Attack("keeps a queue when it is gone", Anybody, "id=$(ipcmk -Q) && ipcrm -q ${id##*: }"),
    Attack("makes a device", Root, "mknod n c 1 8"),
    Attack("gains by a set-user-id program", Ordinary, "passwd -S | grep -qv never"),
    Attack("mounts", Root, "mkdir m && mount -t tmpfs none m && umount m"),
    Attack("makes a user namespace", Perhaps, "unshare -U true"),
    Attack("changes the clock", Root, "perl -e 'exit !(syscall(SETTIME, 0, pack(\"qq\", time, 0)) == 0)'"),
    Attack(
        "connects to a TCP port",
        Anybody,
        "perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(\"127.0.0.1:TCP\")'",
    ),
    Attack(
        "listens at a TCP port",
        Anybody,
        "perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(LocalAddr => \"127.0.0.1:0\", Listen => 1, Proto => \"tcp\")'",
    ),
    Attack(
        "sends by UDP",
        Anybody,
        "perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(PeerAddr => \"127.0.0.1:UDP\", Proto => \"udp\") or exit 1; \
         exit !$s->send(\"x\")'",
    ),
    Attack(
        "sends a datagram to a path",
        Anybody,
        "python3 -c 'import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); \
         a.sendmsg([b\"x\"], [], 0, \"../../datagrams\")'",
    ),
    Attack(
        "connects to the agent's control socket",
        Anybody,
        "perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => \"../../control.sock\")'",
    ),
    Attack(
        "connects to an abstract socket",
        Anybody,
        "perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer => \"\\0ABSTRACT\")'",
    ),
    // The last: its neighbour is another process then.
    Attack("kills a neighbour", Anybody, "kill -9 PID"),
];

/// The application: makes the attacks in its input, and writes of each whether it succeeded. By its mark it
/// is one that shares a file with the agent, and no System V memory.
pub(crate) const PROGRAM: &str = r#"#!/bin/sh
# API_VERSION_8.1.0
place() { sed -n 's:.*<soft_link>\(.*\)</soft_link>.*:\1:p' "$1"; }
in=$(place in) out=$(place out)
. "$in"
echo 0 >boinc_finish_called
"#;

/// The input of a job that makes these attacks, by their numbers.
pub(crate) fn script(attacks: &[(usize, String)]) -> String {
    let mut script = ":>result\n".to_owned();
    for (number, text) in attacks {
        let end = "rm -rf l h t n m r f";
        script += &format!(
            "if ( {text} ) >tried 2>&1; then echo {number} yes; else echo {number} -; fi >>result\n{end}\n"
        );
    }
    script + "cat result >\"$out\"\n"
}
