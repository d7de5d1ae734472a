// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[association]`: the daemons' talk with each other.

use super::check::Wrongs;
use super::section::section;

section! {
    /// `[association]`
    Association {
        /// Management class of the association MADs; the same on all hosts. Takes effect at start.
        class: u8 = cm_msgs::mad::CLASS_APM,
    }
}

impl Association {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        // IBA table 102: 0x09..=0x0f are vendors' and 0x10..=0x2f applications' classes. Vendors'
        // 0x30..=0x4f would need an OUI. The CM's own, 0x07, is for kernels that leave it free.
        let is_class = matches!(self.class, 0x07 | 0x09..=0x2f);
        wrongs.want_number(
            is_class,
            format_args!("{:#04x}", self.class),
            "class",
            "want an application class, 0x09 to 0x2f, or 0x07",
        );
    }
}
