//! What `--help` tells of policies: those that the registry has.

use fallow_policy::accounting::AccountingChoice;
use fallow_policy::completion::CompletionChoice;
use fallow_policy::composition::Composition;
use fallow_policy::cpu_schedule::CpuChoice;
use fallow_policy::fetch::FetchChoice;
use fallow_policy::send::SendChoice;

const SWITCHES: &str = "\
Switches follow with commas, as in CS2_WF2,fetch=below-minimum; tables name
those that differ from the first of each:
  ws2=improved            WS2 counts jobs just chosen, and the host's off time
  ws2=published           WS2 counts neither: as it was published
  ws2=counted             WS2 counts jobs just chosen only
  ws2=scaled              WS2 counts the host's off time only
  fetch=any-shortfall     work is asked for as soon as the buffer is not full
  fetch=below-minimum     once less than client.buffer.min is left
  abort=none              no job is given up for its deadline
  abort=hopeless          jobs that cannot be in time any more are given up
";

/// All policies and switches.
pub(super) fn help() -> String {
    let base = Composition::base();
    let mut help = format!("Policies (--policy) are joined by _; what is left out is as in\n{base}:\n");
    help.push_str(&Composition::help_of_words());
    help.push_str(&CpuChoice::help("", 6, "which jobs run: "));
    help.push_str(&FetchChoice::help("", 6, "what to fetch: "));
    help.push_str(&SendChoice::help("", 6, "what a server sends: "));
    help.push_str(&CompletionChoice::help("", 6, "how long jobs take: "));
    help.push_str(SWITCHES);
    help.push_str(&AccountingChoice::help("accounting=", 22, ""));
    help
}
