// SPDX-License-Identifier: MIT OR Apache-2.0
//! What undoes APM for a kernel ULP though everything is armed: an operator's traps. No I/O here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use cm_msgs::{Guid, Qpn};

use crate::io::apm_module::KernelQp;
use crate::io::nldev::CmId;
use crate::io::nvme::NvmeController;

/// What the kernel tells besides the module.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Surroundings {
    pub(crate) cm_ids: BTreeMap<(Guid, Qpn), CmId>,
    pub(crate) controllers: Vec<NvmeController>,
}

/// One that a queue pair is in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Trap {
    /// It was connected from an address of this bond.
    Bond(String),
    KeepAlive {
        controller: String,
        seconds: u32,
        /// As the path's: 4.096 us * 2^n; 0 has no end.
        ack_timeout: u8,
        retries: u8,
    },
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bond(bond) => write!(
                f,
                "{bond} is a bond of IPoIB interfaces: when it fails over, rdma_cm tells all that were connected \
                 from its address that this has changed, and kernel ULPs drop what APM has saved. Connect from \
                 an interface that is not bonded"
            ),
            Self::KeepAlive {
                controller,
                seconds,
                ack_timeout,
                retries,
            } => {
                write!(
                    f,
                    "the keep-alive of {controller}, {seconds} s, is shorter than the hardware tries before it leaves \
                     a path, "
                )?;
                match retry_time(*ack_timeout, *retries) {
                    Some(time) => write!(
                        f,
                        "{:.1} s (4.096 us * 2^{ack_timeout} * {})",
                        time.as_secs_f64(),
                        u16::from(*retries) + 1
                    )?,
                    None => f.write_str("for ever (ACK timeout 0)")?,
                }
                f.write_str(
                    ": where neither a port event nor a probe tells of a failure, the controller is lost first. \
                     Give it a longer one (`nvme connect -k`), or the connection a shorter ACK timeout \
                     ([kernel] ack_timeout, with apmd at both ends)",
                )
            }
        }
    }
}

/// How long the hardware tries; `None`: for ever.
fn retry_time(ack_timeout: u8, retries: u8) -> Option<Duration> {
    let tries = u64::from(retries) + 1;
    (ack_timeout > 0).then(|| Duration::from_nanos((4096 << ack_timeout.min(31)) * tries))
}

/// What is known of them.
#[derive(Default, Debug)]
pub(crate) struct Traps {
    around: Surroundings,
    /// Bonds of IPoIB interfaces, by their addresses.
    bonds: BTreeMap<IpAddr, String>,
    /// What the log has, by owner.
    told: BTreeSet<(String, Trap)>,
}

impl Traps {
    pub(crate) fn set_surroundings(&mut self, around: Surroundings) {
        self.around = around;
    }

    /// Whether they are others than before.
    pub(crate) fn set_bonds(&mut self, bonds: BTreeMap<IpAddr, String>) -> bool {
        let changed = self.bonds != bonds;
        self.bonds = bonds;
        changed
    }

    /// Those of a kernel ULP's queue pair.
    pub(crate) fn of(&self, qp: &KernelQp) -> Vec<Trap> {
        let cm_id = self.around.cm_ids.get(&(qp.node_guid, qp.qpn));
        let Some(cm_id) = cm_id.filter(|_| qp.owner.pid.is_none() && qp.left_alone.is_none())
        else {
            return Vec::new();
        };
        let bond = self.bonds.get(&cm_id.source).cloned().map(Trap::Bond);
        bond.into_iter().chain(self.keep_alive(qp, cm_id)).collect()
    }

    fn keep_alive(&self, qp: &KernelQp, cm_id: &CmId) -> Option<Trap> {
        let (ack_timeout, retries) = (qp.snapshot?.primary.ack_timeout, qp.retries?);
        let is_its = |it: &&NvmeController| Some(it.target) == cm_id.destination;
        let controller = self.around.controllers.iter().find(is_its)?;
        let keep_alive = Duration::from_secs(controller.keep_alive.into());
        let is_shorter = retry_time(ack_timeout, retries).is_none_or(|time| keep_alive < time);
        (controller.keep_alive > 0 && is_shorter).then(|| Trap::KeepAlive {
            controller: controller.name.clone(),
            seconds: controller.keep_alive,
            ack_timeout,
            retries,
        })
    }

    /// Those of all, by owner, and of how many queue pairs.
    pub(crate) fn count<'a>(
        &self,
        queue_pairs: impl Iterator<Item = &'a KernelQp>,
    ) -> BTreeMap<(String, Trap), usize> {
        let mut counts = BTreeMap::new();
        for qp in queue_pairs {
            for trap in self.of(qp) {
                *counts.entry((qp.owner.name.clone(), trap)).or_default() += 1;
            }
        }
        counts
    }

    /// What the log has not been told yet.
    pub(crate) fn news<'a>(
        &mut self,
        queue_pairs: impl Iterator<Item = &'a KernelQp>,
    ) -> Vec<(String, Trap)> {
        let now: BTreeSet<_> = self.count(queue_pairs).into_keys().collect();
        let news = now.difference(&self.told).cloned().collect();
        self.told = now;
        news
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::control::{MigrationState, QpState, Snapshot};
    use cm_msgs::path::Path;

    use super::*;
    use crate::io::apm_module::{Cookie, LeftAlone, Owner};
    use crate::io::person::Person;

    const DEVICE: Guid = Guid(0x11);

    fn queue_pair(ack_timeout: u8) -> KernelQp {
        KernelQp {
            cookie: Cookie(1),
            node_guid: DEVICE,
            qpn: Qpn(0x22),
            peer_qpn: Qpn(0x33),
            role: None,
            left_alone: None,
            owner: Owner {
                name: "nvme_rdma".to_owned(),
                pid: None,
                uid: 0,
                payer: Person::default(),
                started: None,
            },
            retries: Some(7),
            snapshot: Some(Snapshot {
                qp_state: QpState::Rts,
                migration: MigrationState::Armed,
                primary: Path {
                    ack_timeout,
                    ..Path::default()
                },
                alternate: None,
            }),
        }
    }

    fn controller(address: &str, keep_alive: u32) -> NvmeController {
        NvmeController {
            name: format!("nvme{keep_alive}"),
            target: address.parse().unwrap(),
            keep_alive,
        }
    }

    fn traps(controllers: Vec<NvmeController>) -> Traps {
        let cm_id = CmId {
            qpn: Qpn(0x22),
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2:4420".parse().ok(),
        };
        let mut traps = Traps::default();
        traps.set_surroundings(Surroundings {
            cm_ids: BTreeMap::from([((DEVICE, cm_id.qpn), cm_id)]),
            controllers,
        });
        traps
    }

    fn bonds(address: &str) -> BTreeMap<IpAddr, String> {
        BTreeMap::from([(address.parse().unwrap(), "bond0".to_owned())])
    }

    #[test]
    fn who_connected_from_a_bond_is_named_and_nobody_else() {
        let mut traps = traps(Vec::new());
        let ours = queue_pair(14);
        assert_eq!(traps.of(&ours), []);
        assert!(traps.set_bonds(bonds("10.0.0.9")));
        assert_eq!(traps.of(&ours), [], "another's address");
        assert!(traps.set_bonds(bonds("10.0.0.1")));
        assert!(!traps.set_bonds(bonds("10.0.0.1")));
        assert_eq!(traps.of(&ours), [Trap::Bond("bond0".to_owned())]);
        let other = KernelQp {
            qpn: Qpn(0x23),
            ..ours.clone()
        };
        assert_eq!(traps.of(&other), [], "ib_srp has no rdma_cm id");
        let mut program = ours.clone();
        program.owner.pid = Some(7);
        assert_eq!(traps.of(&program), [], "a program decides for itself");
        let left_alone = Some(LeftAlone::Owner);
        assert_eq!(traps.of(&KernelQp { left_alone, ..ours }), []);
    }

    #[test]
    fn a_keep_alive_is_held_against_all_tries_of_its_own_connection() {
        let others = controller("10.0.0.2:4421", 1);
        let found = |keep_alive, ack_timeout| {
            let own = controller("10.0.0.2:4420", keep_alive);
            let traps = traps(vec![others.clone(), own]);
            let found = traps.of(&queue_pair(ack_timeout)).pop();
            found.map(|trap| trap.to_string())
        };
        // 2^19: 17.18 s; 2^17: 4.29 s; 2^14: 0.54 s.
        let text = found(5, 19).unwrap();
        assert!(
            text.starts_with("the keep-alive of nvme5, 5 s, is shorter than"),
            "{text}"
        );
        assert!(text.contains(" 17.2 s (4.096 us * 2^19 * 8): "), "{text}");
        assert!(found(17, 19).is_some() && found(18, 19).is_none());
        assert!(found(5, 18).is_some() && found(5, 17).is_none() && found(5, 14).is_none());
        assert_eq!(found(0, 19), None, "it has none");
        assert!(found(5, 0).unwrap().contains("for ever"));
        let untold = KernelQp {
            retries: None,
            ..queue_pair(19)
        };
        let own = controller("10.0.0.2:4420", 5);
        assert_eq!(traps(vec![own]).of(&untold), []);
    }

    #[test]
    fn the_log_has_each_once_until_it_is_over() {
        let mut traps = traps(Vec::new());
        traps.set_bonds(bonds("10.0.0.1"));
        let all = [queue_pair(14), queue_pair(14)];
        let bond = ("nvme_rdma".to_owned(), Trap::Bond("bond0".to_owned()));
        assert_eq!(traps.count(all.iter())[&bond], 2);
        assert_eq!(traps.news(all.iter()), std::slice::from_ref(&bond));
        assert_eq!(traps.news(all.iter()), []);
        assert_eq!(traps.news([].iter()), []);
        assert_eq!(traps.news(all.iter()), [bond]);
    }
}
