//! Tests of the whole machine.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod account;
mod amounts;
mod attaching;
mod budget;
mod contact;
mod disk;
mod hand;
mod hours;
mod in_use;
mod jobs_network;
mod just_in_time;
mod life;
mod looks;
mod other_network;
mod preferences;
mod records;
mod requests;
mod required_key;
mod required_layers;
mod review;
mod shares;
mod slow_files;
mod transfers;
mod trickles;
mod turns;
mod without;
mod world;
