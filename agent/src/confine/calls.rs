//! Which calls of the system a job is refused, as filters for seccomp.
//!
//! Model: a list of what no job needs, since what jobs do need cannot be listed: they are other people's
//! programs. A call that is refused fails, as on a system that lacks it; nobody is killed for it. Programs of
//! another architecture than the agent's (32 bits) would get around a list of numbers, so all their calls
//! fail; the platforms that this host names to projects have none.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::sys::Filter;

/// What is refused: `EPERM`.
const REFUSED: [i64; 47] = [
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    // The kernel itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_syslog,
    // Keys, which are the user's and not the process's.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Files by number instead of by name.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
];

/// What is refused as if the system did not have it, so that libraries take another way: `ENOSYS`. Rings of
/// requests make calls that no filter sees, and what `clone3` and `openat2` are asked for, none can read.
/// Rules of Landlock keep a file that has no name any more, where nobody sees it.
const ABSENT: [i64; 8] = [
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_clone3,
    libc::SYS_openat2,
];

/// What is absent, too: memory, semaphores and queues that are nobody's in particular. Any job of the same
/// user could use those of any other, they count for no process, and they are left when it ends.
const NOBODYS: [i64; 12] = [
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_notify,
];

/// And this for jobs that do not share System V memory with the agent. The others may find and use what is
/// there, and make none.
const SYSTEM_V: [i64; 2] = [libc::SYS_shmget, libc::SYS_shmat];

/// Changes a mode, since Linux 6.6: the same number on all processors.
const SYS_FCHMODAT2: i64 = 452;
/// The flags by which a file is made that is opened, each alone: with a name and without one.
const CREATES: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
/// The bits of a socket's type that are not flags.
const SOCKET_TYPE: u64 = 0xf;

/// Calls of the x32 architecture have the numbers of ours with this bit.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// What is refused: by the layer `calls`, by the layer `sockets`; and whether the first leaves jobs System V
/// memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) calls: bool,
    pub(super) sockets: bool,
    pub(super) leaves_system_v: bool,
}

/// The filters for jobs that are refused this much.
pub(super) fn filters(what: Refused) -> Result<Vec<Filter>, String> {
    let absent = || {
        let system_v = SYSTEM_V.iter().filter(|_| !what.leaves_system_v);
        ABSENT.iter().chain(&NOBODYS).chain(system_v).map(|call| (*call, Vec::new())).collect()
    };
    let made = || {
        let mut rules = if what.calls { refused_calls()? } else { Rules::new() };
        if what.calls && what.leaves_system_v {
            let creates = u64::from(libc::IPC_CREAT.unsigned_abs());
            let own = u64::from(libc::IPC_PRIVATE.unsigned_abs());
            let makes = vec![when(2, Is::MaskedEq(creates), creates)?, when(0, Is::Eq, own)?];
            rules.insert(libc::SYS_shmget, makes);
        }
        if what.sockets {
            refuse_sockets(&mut rules)?;
        }
        let mut programs = vec![program(rules, libc::EPERM)?];
        if what.calls {
            programs.push(program(absent(), libc::ENOSYS)?);
        }
        Ok(programs)
    };
    made()
        .map_err(|error: Error| format!("no filter of system calls can be made for this processor: {error}"))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Error = seccompiler::BackendError;

fn refused_calls() -> Result<Rules, Error> {
    let mut rules: Rules = REFUSED.map(|call| (call, Vec::new())).into();
    // Ports of the machine: calls that only this processor has.
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_iopl, libc::SYS_ioperm].map(|call| (call, Vec::new())));
    // Typing into the owner's terminal.
    let types = [libc::TIOCSTI, libc::TIOCLINUX].map(|request| when(1, Is::Eq, request));
    rules.insert(libc::SYS_ioctl, types.into_iter().collect::<Result<_, _>>()?);
    // A lease has whoever opens the file wait, of any program; the file need only be this user's.
    let watches = [libc::F_SETLEASE, libc::F_NOTIFY].map(|command| u64::from(command.unsigned_abs()));
    let watches = watches.map(|command| when(1, Is::Eq, command));
    rules.insert(libc::SYS_fcntl, watches.into_iter().collect::<Result<_, _>>()?);
    // A process in a new namespace; ordinary ones and threads are made by the same call.
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let namespaces = namespaces.map(|flag| u64::from(flag.unsigned_abs()));
    let makes = namespaces.map(|flag| when(0, Is::MaskedEq(flag), flag));
    rules.insert(libc::SYS_clone, makes.into_iter().collect::<Result<_, _>>()?);
    spare_others(&mut rules)?;
    lend_no_rights(&mut rules)?;
    Ok(rules)
}

/// What is left is pairs of sockets, and those that others of the same job connect to by a pair.
fn refuse_sockets(rules: &mut Rules) -> Result<(), Error> {
    let elsewhere = || when(0, Is::Ne, libc::AF_UNIX.unsigned_abs().into());
    // A datagram can be sent to any path, also over a socket that has a partner.
    let types = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|kind| kind.unsigned_abs().into());
    let datagrams = || types.map(|kind| when(1, Is::MaskedEq(SOCKET_TYPE), kind)).into_iter();
    for call in [libc::SYS_socketpair, libc::SYS_socket] {
        rules.insert(call, datagrams().chain([elsewhere()]).collect::<Result<_, _>>()?);
    }
    rules.insert(libc::SYS_connect, Vec::new());
    // To an address, and not over a pair.
    let addressed = SeccompCondition::new(4, Len::Qword, Is::Ne, 0)?;
    rules.insert(libc::SYS_sendto, vec![SeccompRule::new(vec![addressed])?]);
    Ok(())
}

/// Refuses to limit other processes, or to have them wait: to the kernel all of one user are equal.
fn spare_others(rules: &mut Rules) -> Result<(), Error> {
    let is = |argument, is, value| SeccompCondition::new(argument, Len::Dword, is, value);
    // A limit that is to be set, and not only asked for.
    let sets = SeccompCondition::new(2, Len::Qword, Is::Ne, 0)?;
    // Nor that by which a process is known as its task's (see [`crate::brand`]).
    let brand = libc::RLIMIT_LOCKS as u64;
    let others = SeccompRule::new(vec![is(0, Is::Ne, 0)?, sets.clone()])?;
    let own = SeccompRule::new(vec![is(1, Is::Eq, brand)?, sets])?;
    rules.insert(libc::SYS_prlimit64, vec![others, own]);
    rules.insert(libc::SYS_setrlimit, vec![when(0, Is::Eq, brand)?]);
    // Nor may it close itself to the agent, which looks at what files it has open (see [`crate::nameless`]),
    // or say that its arguments and its environment, which others read, are somewhere else in its memory.
    let closing =
        [libc::PR_SET_DUMPABLE, libc::PR_SET_MM].map(|what| when(0, Is::Eq, what.unsigned_abs().into()));
    rules.insert(libc::SYS_prctl, closing.into_iter().collect::<Result<_, _>>()?);
    // Of whole groups and users, or of one that is not the caller.
    for (call, of_process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        rules.insert(call, vec![when(0, Is::Ne, of_process)?, when(1, Is::Ne, 0)?]);
    }
    for call in [libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr] {
        rules.insert(call, vec![when(0, Is::Ne, 0)?]);
    }
    Ok(())
}

/// Refuses to make programs that run as their owner whoever starts them: another user of the machine would
/// have the agent's rights by one.
fn lend_no_rights(rules: &mut Rules) -> Result<(), Error> {
    let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
    let set = |argument, bit| SeccompCondition::new(argument, Len::Dword, Is::MaskedEq(bit), bit);
    let mut refuse = |call: i64, mode: u8, creates: Option<u8>| -> Result<(), Error> {
        let rules = rules.entry(call).or_default();
        for bit in bits {
            match creates {
                Some(flags) => {
                    for create in CREATES {
                        let create = u64::from(create.unsigned_abs());
                        rules.push(SeccompRule::new(vec![set(mode, bit)?, set(flags, create)?])?);
                    }
                }
                None => rules.push(SeccompRule::new(vec![set(mode, bit)?])?),
            }
        }
        Ok(())
    };
    refuse(libc::SYS_fchmod, 1, None)?;
    refuse(libc::SYS_fchmodat, 2, None)?;
    refuse(SYS_FCHMODAT2, 2, None)?;
    refuse(libc::SYS_mknodat, 2, None)?;
    refuse(libc::SYS_openat, 3, Some(2))?;
    // Calls that only older processors have.
    #[cfg(target_arch = "x86_64")]
    {
        refuse(libc::SYS_chmod, 1, None)?;
        refuse(libc::SYS_mknod, 1, None)?;
        refuse(libc::SYS_creat, 1, None)?;
        refuse(libc::SYS_open, 2, Some(1))?;
    }
    Ok(())
}

/// A rule on 32 bits of an argument: more, the kernel does not look at.
fn when(argument: u8, is: Is, value: u64) -> Result<SeccompRule, Error> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Len::Dword, is, value)?])
}

fn program(rules: Rules, errno: i32) -> Result<Filter, Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    let mut program = BpfProgram::try_from(filter)?;
    // The crate kills whoever calls by another architecture's numbers.
    let absent = u32::from(SeccompAction::Errno(libc::ENOSYS.unsigned_abs()));
    let kill = u32::from(SeccompAction::KillProcess);
    program.iter_mut().filter(|step| step.k == kill && is_return(step)).for_each(|step| step.k = absent);
    #[cfg(target_arch = "x86_64")]
    refuse_x32(&mut program, absent);
    Ok(Filter::new(program.iter().map(|step| (step.code, step.jt, step.jf, step.k))))
}

fn is_return(step: &sock_filter) -> bool {
    u32::from(step.code) == libc::BPF_RET | libc::BPF_K
}

/// Refuses the calls of x32, right after it is known that they are not those of another architecture.
#[cfg(target_arch = "x86_64")]
fn refuse_x32(program: &mut BpfProgram, absent: u32) {
    // The architecture is looked at in the first three steps, and the number is loaded in the fourth.
    const NUMBER_LOADED: usize = 4;
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let steps = [
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, absent),
    ];
    let at = NUMBER_LOADED.min(program.len());
    program.splice(at..at, steps);
}
