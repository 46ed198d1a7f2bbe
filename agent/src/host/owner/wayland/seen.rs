//! What a compositor has said: what it has, and which seats are idle.

use std::collections::BTreeMap;

use wayland_client::protocol::wl_callback::WlCallback;
use wayland_client::protocol::wl_registry::{self, WlRegistry};
use wayland_client::protocol::wl_seat::WlSeat;
use wayland_client::{Connection, Dispatch, Proxy, QueueHandle, delegate_noop};
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notification_v1::{
    self, ExtIdleNotificationV1,
};
use wayland_protocols::ext::idle_notify::v1::client::ext_idle_notifier_v1::ExtIdleNotifierV1;

/// Most seats that are listened to; each has its own keyboards and mice.
const SEATS_MAX: usize = 8;

/// By what number a compositor offers something, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) name: u32,
    pub(super) version: u32,
}

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Its idle protocol.
    pub(super) notifier: Option<Offer>,
    /// That was there, and is not any more.
    pub(super) has_lost_notifier: bool,
    /// Its seats by number, and those that are listened to.
    pub(super) seats: BTreeMap<u32, Option<Seat>>,
    /// Its answers to what it was asked.
    pub(super) answers: u32,
    /// A seat that was idle is used again.
    pub(super) resumed: bool,
    /// A seat that was used has become idle.
    pub(super) idled: bool,
}

/// A seat that is listened to.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) seat: WlSeat,
    pub(super) notification: ExtIdleNotificationV1,
    /// Nobody has used it for a moment.
    pub(super) is_idle: bool,
}

impl Seen {
    /// Whether anybody uses any of its seats.
    pub(super) fn is_used(&self) -> bool {
        self.seats.values().flatten().any(|seat| !seat.is_idle)
    }

    /// Forgets that something has happened, and says what.
    pub(super) fn take_news(&mut self) -> (bool, bool) {
        (std::mem::take(&mut self.resumed), std::mem::take(&mut self.idled))
    }
}

impl Dispatch<WlRegistry, ()> for Seen {
    fn event(
        seen: &mut Self,
        _: &WlRegistry,
        event: wl_registry::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        match event {
            wl_registry::Event::Global { name, interface, version } => {
                if interface == ExtIdleNotifierV1::interface().name {
                    seen.notifier.get_or_insert(Offer { name, version });
                } else if interface == WlSeat::interface().name && seen.seats.len() < SEATS_MAX {
                    seen.seats.entry(name).or_insert(None);
                }
            }
            wl_registry::Event::GlobalRemove { name } => {
                seen.has_lost_notifier |= seen.notifier.is_some_and(|offer| offer.name == name);
                if let Some(Some(seat)) = seen.seats.remove(&name) {
                    seat.notification.destroy();
                }
            }
            _ => {}
        }
    }
}

impl Dispatch<ExtIdleNotificationV1, u32> for Seen {
    fn event(
        seen: &mut Self,
        _: &ExtIdleNotificationV1,
        event: ext_idle_notification_v1::Event,
        name: &u32,
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        let Some(Some(seat)) = seen.seats.get_mut(name) else { return };
        match event {
            ext_idle_notification_v1::Event::Idled => (seat.is_idle, seen.idled) = (true, true),
            ext_idle_notification_v1::Event::Resumed => (seat.is_idle, seen.resumed) = (false, true),
            _ => {}
        }
    }
}

impl Dispatch<WlCallback, ()> for Seen {
    fn event(
        seen: &mut Self,
        _: &WlCallback,
        _: <WlCallback as Proxy>::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<Self>,
    ) {
        seen.answers = seen.answers.wrapping_add(1);
    }
}

// What a seat has, and what it is called, is nobody's business here; a notifier says nothing.
delegate_noop!(Seen: ignore WlSeat);
delegate_noop!(Seen: ExtIdleNotifierV1);
