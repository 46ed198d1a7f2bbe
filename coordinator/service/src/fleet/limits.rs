//! Bounds on what one agent may send or hold. Beyond them its stream is closed with the reason. Those on a
//! single entry are the contract's ([`fallow_proto::fleet::limits`]).

use std::time::Duration;

use fallow_domain::Duration as Life;

/// Entries and removals in one message. A host of 256 CPUs that holds a month of short jobs has some
/// thousands.
pub const ENTRIES_PER_MESSAGE: usize = 20_000;
/// Bytes that an agent's entries may take, keys and values as they are held (`weight`), and those
/// of the projects that it has left. A job with a name of 40 bytes of a project with a URL of 40 takes 400 to
/// 500, so a host with 10,000 of them takes less than 5 MiB.
pub const BYTES_PER_AGENT: usize = 8 << 20;
/// The same of a machine: of a host, its copies and theirs together, which come without a token. A room of 60
/// machines that were set up from one image has room for 2,000 such jobs on each.
pub const BYTES_PER_MACHINE: usize = 8 * BYTES_PER_AGENT;
/// What each of these may hold, whatever the others hold: some hundreds of jobs. So a hostile copy shuts out
/// none of the machines of its image.
pub const BYTES_OF_EACH: usize = BYTES_PER_MACHINE / COPIES;
/// Projects among them: twice as many as documents may name, for those of its owner, and those that are left.
pub const PROJECTS_PER_AGENT: usize = 2_000;
/// Projects that an agent had CPU time of and has no more: what it computed for them is kept for ever.
pub const PASTS_PER_AGENT: usize = 10_000;
/// Of those, how many are kept of an agent that is no member of the fleet any more: those with the most CPU
/// time. As many as a host has in its life, unless it made them up.
pub const PASTS_KEPT: usize = 200;
/// Bytes of one message on the link.
pub const MESSAGE_BYTES: usize = 8 << 20;
/// Messages of one agent that are on their way to the store: enough to keep the group commit busy, little
/// memory.
pub const PIPELINE: usize = 64;
/// What an agent may say in a second, in messages: one that says more waits (`pace`).
pub const MESSAGES_A_SECOND: u32 = 500;
/// Bytes of a message that cost as much as another message.
pub const BYTES_OF_MESSAGE: usize = 16 << 10;
/// For how long it may save that up.
pub const SAVED_UP: Duration = Duration::from_secs(10);
/// Messages that wait in an agent's outgoing channel. What does not fit there is kept as "newest", never as a
/// list.
pub const OUTGOING: usize = 8;
/// An agent that takes nothing for so long is cut off when the next heartbeat is due: it comes back and is
/// told the newest.
pub const SLOW: Duration = Duration::from_secs(30);
/// Bytes of the first message on a link, and of all other requests of agents: these are names, numbers and a
/// public key.
pub const FIRST_BYTES: usize = 64 << 10;
/// Time for the first message after the connection is made.
pub const HELLO: Duration = Duration::from_secs(10);
/// Connections that an agent can keep at once: one, and those that it has given up and that have not ended
/// here.
pub const LINKS: usize = 4;
/// Calls of an agent beside its link that are worked on at once, whoever has its certificate.
pub const AT_WORK: usize = 2;
/// The same of all who have no certificate yet. Those at one place have half of them at most.
pub const STRANGERS_AT_WORK: usize = 16;
/// Connections of other processes with a host's identity that may wait for its link at once: most of a room
/// of machines that were set up from one image. The others come again.
pub const WAITING: usize = 48;
/// How long a process that has a host's link may take to say that it is there, when another wants it.
pub const PROBE: Duration = Duration::from_secs(5);
/// How long a copy of a host may take to become one of its own once it was told.
pub const TICKET_LIFE: Life = Life::from_secs(600);
/// Copies of one host that may be about to.
pub const TICKETS: usize = 100;
/// How long a copy that was told is left to ask, when others come from where it did: it asks at once.
pub const TICKET_KEPT: Life = Life::from_secs(30);
/// How many may do so within an hour, theirs included: a room of machines that were set up from one image.
pub const COPIES_AN_HOUR: usize = 60;
/// And how many there may be of one in all, theirs included, until some are revoked or forgotten.
pub const COPIES: usize = 400;
/// Enrolment tokens made at once.
pub const TOKENS: u32 = 10_000;
/// Agents that one token may enrol.
pub const TOKEN_USES: u32 = 1_000_000;
/// How long a token may be good: one that is forgotten in a script is a key to the fleet.
pub const TOKEN_LIFE: Life = Life::from_hours(366 * 24);
/// A host's certificate is not renewed more often, nor than a hundred times in its life: until then the
/// newest one is given again.
pub const RENEWAL: Life = Life::from_secs(10);

/// So long it is waited for what an agent that is to be taken for gone may have said already.
pub const DOUBT: Duration = Duration::from_secs(5);
/// Heartbeats after which it is stored anew that an agent is heard of.
pub const SEEN_KEPT: u32 = 2;
