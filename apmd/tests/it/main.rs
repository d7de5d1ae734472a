// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the crate does as its users meet it: the real programs without any device, and the list of
//! path sources in virtual time.

mod acm;
mod acm_load;
mod apmctl;
mod config;
mod ctl;
mod daemon;
mod directory;
mod fabric;
mod imports;

mod lists;
mod orders;
mod restart;
mod run;
mod script;
mod status;
mod strangers;
mod unreachable;
