// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a node is called.

use std::fmt;
use std::ops::Deref;

use cm_msgs::Escaped;

/// A node's description, with control characters escaped from the beginning: it is chosen by
/// whoever administers that node, and ends in others' terminals and logs.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct NodeName(Box<str>);

impl Deref for NodeName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for NodeName {
    fn from(description: T) -> Self {
        Self(Escaped(description.as_ref()).to_string().into())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
