// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noticing asynchronous verbs events without taking them from the application.
//!
//! The descriptor of a verbs context becomes readable with each event. It is watched for edges and
//! never read: what happened is found out by querying the QPs.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::connection::ContextKey;

/// The watched contexts, and how many connections each of them has.
#[derive(Default)]
pub(crate) struct AsyncEvents(HashMap<ContextKey, usize>);

impl AsyncEvents {
    /// Watches the context for one more connection; epoll names it by its address.
    ///
    /// # Safety
    /// The context must be open during the call.
    pub(crate) unsafe fn add(&mut self, epoll: &Epoll, context: ContextKey) -> Result<(), Errno> {
        let count = self.0.entry(context).or_default();
        *count += 1;
        if *count > 1 || context.async_fd < 0 {
            return Ok(());
        }
        let event = EpollEvent::new(
            EpollFlags::EPOLLIN | EpollFlags::EPOLLET,
            context.address as u64,
        );
        // SAFETY: the context is open, and so is its descriptor.
        epoll.add(unsafe { BorrowedFd::borrow_raw(context.async_fd) }, event)
    }

    /// One connection less.
    pub(crate) fn remove(&mut self, epoll: &Epoll, context: ContextKey) {
        let Some(count) = self.0.get_mut(&context) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.0.remove(&context);
        if context.async_fd >= 0 {
            // SAFETY: only the number is used. If the context was closed meanwhile, the kernel has
            // forgotten the descriptor, and whatever has its number now is not in this epoll.
            let _ = epoll.delete(unsafe { BorrowedFd::borrow_raw(context.async_fd) });
        }
    }
}
