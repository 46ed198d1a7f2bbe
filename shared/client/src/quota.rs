//! How much may be transferred in some days (R6.4): when that is spent, what is under way is broken off and
//! goes on from there when days pass. No project is contacted meanwhile but for whoever is at the host and
//! asks for it: what it would send could not be fetched, nor what it wants be sent (the stock client
//! likewise).

use fallow_domain::agent_state::NetworkRest;
use fallow_domain::{Bytes, Instant, LocalTime};
use fallow_policy::transfer_quota::{Spent, TransferDays};

use crate::machine::Client;
use crate::record::Record;
use crate::timers::Timer;
use crate::{Cause, Direction, Effect, Entity, FileKey, NoticeLevel};

/// What was transferred of late, and whether more may be.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    days: TransferDays,
    /// Nothing more may be, by the last look.
    spent: Option<Spent>,
}

impl Quota {
    pub(crate) const fn days(&self) -> &TransferDays {
        &self.days
    }

    pub(crate) fn restore(&mut self, days: TransferDays) {
        self.days = days;
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.spent.is_some()
    }

    /// Until when nothing more may be transferred.
    pub(crate) fn spent_until(&self) -> Option<Instant> {
        self.spent.map(|spent| spent.until)
    }
}

impl Client {
    /// How much may be transferred yet, if that is limited.
    pub fn transfers_left(&self) -> Option<Bytes> {
        let local = self.local_preferences();
        let most = local.transfer_max?;
        let (days, wall) = (local.transfer_days(), self.wall());
        Some(self.state.quota.days.left(self.now(), &wall, most, days).unwrap_or_default())
    }

    /// Why nothing more may be transferred, if nothing may.
    pub(crate) const fn transfers_spent(&self) -> Option<Spent> {
        self.state.quota.spent
    }

    fn wall(&self) -> LocalTime {
        *self.state.host.local_time()
    }

    /// Files came to so much since that was said last.
    pub(crate) fn files_moved(&mut self, up: Bytes, down: Bytes) {
        let (now, wall) = (self.now(), self.wall());
        self.state.quota.days.add(now, &wall, up, down);
        self.store_only(Record::TransferDays);
    }

    /// Looks whether more may be transferred.
    pub(crate) fn poll_quota(&mut self) {
        let local = self.local_preferences();
        let (most, days) = (local.transfer_max, local.transfer_days());
        if most.is_none() && self.state.quota.spent.is_none() {
            return;
        }
        let (now, wall) = (self.now(), self.wall());
        if self.state.quota.days.observe(now, &wall) {
            self.store_only(Record::TransferDays);
        }
        let spent = most.and_then(|most| self.state.quota.days.left(now, &wall, most, days).err());
        let was = std::mem::replace(&mut self.state.quota.spent, spent);
        if was.map(|spent| spent.until) != spent.map(|spent| spent.until) {
            self.timers.all_stale([Timer::Transfer, Timer::Connection]);
        }
        if was.is_none() != spent.is_none() {
            self.touch(Entity::Host);
            let text = match spent {
                Some(spent) => format!("nothing more is transferred: {spent}"),
                None => "files may be transferred again".to_owned(),
            };
            self.notice(NoticeLevel::Info, None, text);
        }
        if let Some(spent) = spent {
            self.break_off_transfers(&Cause::TransfersSpent(spent));
        }
    }

    /// No failure, so nobody is to blame: each goes on where it was when its turn comes.
    pub(crate) fn break_off_transfers(&mut self, why: &Cause) {
        for direction in Direction::BOTH {
            let active: Vec<FileKey> = self.state.transfers.active(direction).cloned().collect();
            for key in active {
                self.edit_transfer(&key, |transfer, _| transfer.active = false);
                self.act(Effect::CancelTransfer { file: key }, why.clone());
            }
        }
    }

    /// What in the preferences of the network keeps projects from being contacted now, if anything does.
    pub(crate) fn network_rest(&self) -> Option<NetworkRest> {
        self.rests_by(self.state.host.network_closed_until(self.now()).is_some())
    }

    /// The same of whoever knows whether it is none of its hours.
    pub(crate) fn rests_by(&self, is_closed: bool) -> Option<NetworkRest> {
        [
            (self.state.quota.is_spent(), NetworkRest::Amount),
            (self.wifi.is_lacking(), NetworkRest::Wifi),
            (is_closed, NetworkRest::Hours),
            // It is being looked whether it is on WiFi.
            (self.wifi.forbids(), NetworkRest::Other),
        ]
        .into_iter()
        .find_map(|(is_so, rest)| is_so.then_some(rest))
    }

    /// The same in words.
    pub(crate) fn network_rests(&self) -> Option<String> {
        let (host, now) = (&self.state.host, self.now());
        let until = |at: Instant| match at {
            Instant::FAR_FUTURE => String::new(),
            at => format!("; that ends in {} ({})", at.since(now), host.local_time().show(at)),
        };
        if let Some(spent) = self.transfers_spent() {
            return Some(format!("{spent}{}", until(spent.until)));
        }
        if let Some(why) = self.awaits_wifi() {
            return Some(why);
        }
        let closed_until = host.network_closed_until(now)?;
        let hours = &self.local_preferences().network_hours;
        Some(format!("the hours of the network are {hours}{}", until(closed_until)))
    }
}
