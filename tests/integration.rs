//! Integration tests, in one binary: the engine in memory, the program on real files, the rules of the tree.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
#![allow(unreachable_pub, reason = "nothing outside this binary can reach anything")]

mod architecture;
#[cfg(unix)]
mod browser;
mod cli;
mod counting;
mod endurance;
mod engine;
#[cfg(unix)]
mod events;
mod excerpt;
#[cfg(all(unix, feature = "farm"))]
mod farm;
mod fleet;
#[cfg(unix)]
mod interrupts;
mod live;
mod matches;
mod observe;
mod orders;
mod page;
mod random_faults;
mod resources;
#[cfg(unix)]
mod scripts;
mod test_log;
mod tracker;
mod util;
