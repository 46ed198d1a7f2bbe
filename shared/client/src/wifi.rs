//! Contact on WiFi only (R6.4; BOINC: `network_wifi_only`). Elsewhere no project is contacted but for whoever
//! is at the host and asks for it, and files wait even then: what is under way is broken off and goes on from
//! there on WiFi. Until it was looked what leads to the network, nothing begins, and nothing is broken off.

use crate::machine::Client;
use crate::surroundings::NetworkOver;
use crate::timers::Timer;
use crate::{Cause, Entity, NoticeLevel};

/// How the host stands to a preference for WiFi.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wifi {
    stand: Stand,
}

/// By the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stand {
    /// It is on WiFi, or need not be.
    #[default]
    Fine,
    /// It has to be, and nobody has looked yet.
    Unknown,
    /// It has to be, and is not.
    Lacking,
}

impl Wifi {
    /// Whether it is known that the host is not on WiFi, and has to be.
    pub(crate) fn is_lacking(self) -> bool {
        self.stand == Stand::Lacking
    }

    /// Whether nothing may be transferred.
    pub(crate) fn forbids(self) -> bool {
        self.stand != Stand::Fine
    }
}

impl Client {
    /// Looks whether the host is on WiFi where it has to be.
    pub(crate) fn poll_wifi(&mut self) {
        let is = match (self.local_preferences().network_wifi_only, self.state.host.around().network()) {
            (false, _) | (true, Some(NetworkOver::Wifi)) => Stand::Fine,
            (true, None) => Stand::Unknown,
            (true, Some(NetworkOver::Other(_) | NetworkOver::Nothing)) => Stand::Lacking,
        };
        let was = std::mem::replace(&mut self.wifi.stand, is);
        if was == is {
            return;
        }
        self.timers.all_stale([Timer::Transfer, Timer::Connection]);
        self.touch(Entity::Host);
        if is == Stand::Lacking {
            self.notice(NoticeLevel::Info, None, format!("nothing is transferred: {}", self.wifi_text()));
            self.break_off_transfers(&Cause::NoWifi);
        } else if was == Stand::Lacking {
            self.notice(NoticeLevel::Info, None, "this machine need not wait for WiFi any more".to_owned());
        }
    }

    /// Why nothing is transferred, if that is for want of WiFi.
    pub(crate) fn awaits_wifi(&self) -> Option<String> {
        self.wifi.forbids().then(|| self.wifi_text())
    }

    fn wifi_text(&self) -> String {
        match self.state.host.around().network() {
            None => "it is looked whether this machine is on WiFi (`network_wifi_only`)".to_owned(),
            Some(NetworkOver::Other(name)) => {
                let name = fallow_domain::printable::line(name, NAME_MAX);
                format!("this machine is not on WiFi but on {name} (`network_wifi_only`)")
            }
            Some(NetworkOver::Wifi | NetworkOver::Nothing) => {
                "this machine is not on WiFi (`network_wifi_only`)".to_owned()
            }
        }
    }
}

/// Most letters of an interface's name that are shown: Linux has 15.
const NAME_MAX: usize = 40;
