//! The policies that decide on queues of jobs, driven from outside: tables, examples and properties.

mod closed_loop;
mod coprocessors;
mod cpu_schedule;
mod endangered;
mod fetch;
mod fetch_world;
mod fluid;
mod job_queue;
mod just_in_time;
mod just_in_time_property;
mod metrics;
mod places;
mod round_robin;
mod rpc_session;
mod rpc_timing;
mod two_types;
mod work_fetch;
mod world;
