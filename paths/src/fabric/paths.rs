// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path records out of a fabric, as OpenSM gives them.

use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid, PKey};
use pathdb::{Fabric, LidRange, PortId};
use statemachine::{PathQuery, QueryError};

/// PathRecord:PacketLifeTime where the fabric does not say: OpenSM's default, 1.07 s.
const LIFE_TIME: u8 = 18;

/// Selector of a component that is exactly what it says.
const EXACTLY: u8 = 2;

/// The paths that fit the query, that of the base LIDs first. Reversible: a packet's way back is
/// looked at as well as its way there. `sl` is on all of them, and no SL-to-VL table that is known
/// drops it.
///
/// # Errors
/// [`QueryError::NoPath`] if there are none.
pub fn records(fabric: &Fabric, query: &PathQuery, sl: u8) -> Result<Vec<PathRecord>, QueryError> {
    let found = find(fabric, query, sl).unwrap_or_default();
    if found.is_empty() {
        return Err(QueryError::NoPath);
    }
    Ok(found)
}

fn find(fabric: &Fabric, query: &PathQuery, sl: u8) -> Option<Vec<PathRecord>> {
    if query.sgid.subnet_prefix() != query.dgid.subnet_prefix() {
        return None;
    }
    let port = |gid: Gid| fabric.port_by_guid(gid.interface_id());
    let (local, remote) = (port(query.sgid)?, port(query.dgid)?);
    let allowed = |port| admits(fabric.pkeys(port), query.pkey);
    // Packets between ports without a common partition are dropped at the far end (IBA 10.9).
    if !allowed(local) || !allowed(remote) || !fabric.share_partition(local, remote) {
        return None;
    }
    let slids = lids(fabric.port(local).lids?, query.slid);
    let dlids = lids(fabric.port(remote).lids?, query.dlid);
    // One LID of one side with one of the other: as many paths as the side with more has LIDs.
    let count = slids.len().max(dlids.len());
    let pairs = slids.iter().cycle().zip(dlids.iter().cycle()).take(count);
    let template = PathRecord {
        sgid: query.sgid,
        dgid: query.dgid,
        pkey: query.pkey,
        sl,
        ..PathRecord::default()
    };
    Some(
        pairs
            .filter_map(|(&slid, &dlid)| path(fabric, (local, slid), (remote, dlid), template))
            .collect(),
    )
}

/// Whether a port with this table, empty if not known, is in the partition.
fn admits(table: &[PKey], pkey: PKey) -> bool {
    let mut keys = table.iter();
    table.is_empty() || keys.any(|key| key.partition() == pkey.partition())
}

/// The LIDs to try: the one that is asked for, if it is the port's, or all.
fn lids(range: LidRange, asked: Option<Lid>) -> Vec<Lid> {
    let fits = |lid: &Lid| asked.is_none_or(|asked| asked == *lid);
    range.iter().filter(fits).collect()
}

fn path(
    fabric: &Fabric,
    (local, slid): (PortId, Lid),
    (remote, dlid): (PortId, Lid),
    template: PathRecord,
) -> Option<PathRecord> {
    let forward = fabric.leg(local, dlid).ok()?;
    let reverse = fabric.leg(remote, slid).ok()?;
    if fabric.knows_sl_to_vl() {
        let levels = fabric.path_service_levels(pathdb::Path { slid, dlid });
        levels.ok()?.contains(template.sl).then_some(())?;
    }
    // OpenSM looks at the way there only; where they differ, less is safe.
    let carries = forward.carries.min(reverse.carries);
    let life_time = fabric.terms().packet_life_time.unwrap_or(LIFE_TIME);
    Some(PathRecord {
        slid,
        dlid,
        reversible: true,
        mtu_selector: EXACTLY,
        mtu: carries.mtu?.code(),
        rate_selector: EXACTLY,
        rate: carries.rate?.code(),
        packet_life_time_selector: EXACTLY,
        packet_life_time: if local == remote { 0 } else { life_time },
        ..template
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::Guid;
    use test_fabrics::two_rails::{self, Shape, gid, port};
    use test_fabrics::{FatTree, Spread};

    fn query(local: u64, remote: u64) -> PathQuery {
        PathQuery {
            query: 1,
            port: port(1),
            sgid: gid(local),
            dgid: gid(remote),
            slid: None,
            dlid: None,
            pkey: PKey(0xffff),
        }
    }

    #[test]
    fn a_path_is_what_opensm_would_say() {
        let fabric = two_rails::fabric(Shape::default());
        let found = records(&fabric, &query(12, 22), 5).unwrap();
        let wanted = PathRecord {
            sgid: gid(12),
            dgid: gid(22),
            slid: Lid(3),
            dlid: Lid(5),
            reversible: true,
            pkey: PKey(0xffff),
            sl: 5,
            mtu_selector: 2,
            mtu: 5,
            rate_selector: 2,
            rate: 7,
            packet_life_time_selector: 2,
            packet_life_time: 17,
            ..PathRecord::default()
        };
        assert_eq!(found, [wanted]);
        let loopback = records(&fabric, &query(12, 12), 0).unwrap();
        assert_eq!(loopback[0].packet_life_time, 0);
    }

    #[test]
    fn no_path_where_none_is() {
        let fabric = two_rails::fabric(Shape {
            down: Some((2, 2)),
            ..Shape::default()
        });
        let none = |query: PathQuery| records(&fabric, &query, 0) == Err(QueryError::NoPath);
        assert!(none(query(12, 22)), "the cable is down");
        assert!(none(query(12, 99)), "nobody has this GUID");
        assert!(!none(query(12, 21)));
        let elsewhere = PathQuery {
            dgid: Gid::new(7, Guid(21)),
            ..query(12, 21)
        };
        assert!(none(elsewhere), "another subnet");
        let of_another = PathQuery {
            dlid: Some(Lid(5)),
            ..query(12, 21)
        };
        assert!(none(of_another), "the LID of another port");
    }

    #[test]
    fn a_path_that_drops_its_service_level_is_none() {
        let fabric = two_rails::fabric(Shape {
            lanes: Some(pathdb::SlToVl([0x0f; 8])),
            ..Shape::default()
        });
        let none = |query, sl| records(&fabric, &query, sl) == Err(QueryError::NoPath);
        assert!(none(query(12, 22), 5), "switch 1 drops odd ones");
        assert!(!none(query(12, 22), 4));
        assert!(!none(query(11, 21), 5), "by switch 0");
    }

    #[test]
    fn all_lids_or_the_one_asked_for() {
        let tree = FatTree {
            pods: 2,
            half: 2,
            dual: false,
            lmc: 1,
            spread: Spread::DModK,
        };
        let fabric = tree.build().unwrap();
        let ends: Vec<_> = fabric.end_ports().take(2).collect();
        let guid = |port| fabric.port(port).guid.unwrap().0;
        let query = query(guid(ends[0]), guid(ends[1]));
        let lids = |query: &PathQuery| -> Vec<_> {
            let records = records(&fabric, query, 0).unwrap();
            records.iter().map(|r| (r.slid.0, r.dlid.0)).collect()
        };
        assert_eq!(lids(&query), [(2, 4), (3, 5)]);
        let by_dlid = PathQuery {
            dlid: Some(Lid(5)),
            ..query
        };
        assert_eq!(lids(&by_dlid), [(2, 5), (3, 5)]);
    }
}
