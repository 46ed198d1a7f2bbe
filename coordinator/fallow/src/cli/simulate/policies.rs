//! What `--help` tells of policies: those that the registry has.

use std::fmt::Write as _;

use fallow_policy::accounting::AccountingPolicy;
use fallow_policy::choice::{Kind, Policy};
use fallow_policy::completion::CompletionPolicy;
use fallow_policy::composition::Composition;
use fallow_policy::cpu_schedule::CpuPolicy;
use fallow_policy::fetch::FetchPolicy;
use fallow_policy::send::SendPolicy;

const SWITCHES: &str = "\
Switches follow with commas, as in CS2_WF2,fetch=below-minimum; tables name
those that differ from the default, the first:
  ws2=improved            WS2 counts jobs just chosen, and the host's off time
  ws2=published           WS2 counts neither: as it was published
  ws2=counted             WS2 counts jobs just chosen only
  ws2=scaled              WS2 counts the host's off time only
  fetch=any-shortfall     work is asked for as soon as the buffer is not full
  fetch=below-minimum     once less than client.buffer.min is left
";

/// All policies and switches.
pub(super) fn help() -> String {
    let default = Composition::default();
    let mut help = format!("Policies (--policy) are joined by _; what is left out is as in\n{default}:\n");
    tell::<dyn CpuPolicy>(&mut help, "which jobs run: ", "", 6);
    tell::<dyn FetchPolicy>(&mut help, "what to fetch: ", "", 6);
    tell::<dyn SendPolicy>(&mut help, "what a server sends: ", "", 6);
    tell::<dyn CompletionPolicy>(&mut help, "how long jobs take: ", "", 6);
    help.push_str(SWITCHES);
    tell::<dyn AccountingPolicy>(&mut help, "", "accounting=", 22);
    help
}

fn tell<K: Kind + ?Sized>(help: &mut String, what: &str, switch: &str, width: usize) {
    for policy in Policy::<K>::all() {
        let name = format!("{switch}{policy}");
        let _ = writeln!(help, "  {name:<width$}  {what}{}", policy.summary());
    }
}
