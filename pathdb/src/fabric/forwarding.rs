// SPDX-License-Identifier: MIT OR Apache-2.0
//! The linear forwarding tables of all switches, as one array with a row for each LID: what every
//! switch does with packets for that LID. All paths to one LID use one row, which at 3,584 switches
//! fits the first-level cache.

use cm_msgs::Lid;

/// The entry of a LID that a switch drops (IBA 14.2.5.10: port 255).
pub(crate) const NO_PORT: u8 = 0xff;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Forwarding {
    switches: usize,
    ports: Vec<u8>,
}

impl Forwarding {
    /// Tables of `switches` switches that drop everything for LIDs up to `top`.
    pub(crate) fn new(switches: usize, top: usize) -> Self {
        Self {
            switches,
            ports: vec![NO_PORT; switches * (top + 1)],
        }
    }

    /// What the switches, by rank, do with packets for `lid`. Empty for LIDs above the highest.
    #[inline]
    pub(crate) fn row(&self, lid: Lid) -> &[u8] {
        let from = usize::from(lid.0) * self.switches;
        self.ports.get(from..from + self.switches).unwrap_or(&[])
    }

    pub(crate) fn get(&self, lid: Lid, switch: u32) -> u8 {
        self.row(lid)
            .get(switch as usize)
            .copied()
            .unwrap_or(NO_PORT)
    }

    /// Sets one entry; tables grow to hold the LID.
    pub(crate) fn set(&mut self, lid: Lid, switch: u32, port: u8) {
        let from = usize::from(lid.0) * self.switches;
        if from + self.switches > self.ports.len() {
            self.ports.resize(from + self.switches, NO_PORT);
        }
        self.ports[from + switch as usize] = port;
    }

    /// A switch drops everything.
    pub(crate) fn drop_all(&mut self, switch: u32) {
        for row in self.ports.chunks_exact_mut(self.switches.max(1)) {
            row[switch as usize] = NO_PORT;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ports.capacity()
    }

    /// For how many LIDs there are rows, from 0.
    pub(crate) fn lids(&self) -> usize {
        self.ports.len().checked_div(self.switches).unwrap_or(0)
    }

    /// All rows.
    pub(crate) fn rows(&self) -> &[u8] {
        &self.ports
    }

    /// Takes all rows; a row has one byte for each switch.
    pub(crate) fn from_rows(switches: usize, rows: Vec<u8>) -> Self {
        Self {
            switches,
            ports: rows,
        }
    }
}
