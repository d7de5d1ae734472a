// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes of the SA's and of ports, by name, for people and as JSON.

use cm_msgs::Gid;
use cm_msgs::fields::{FieldValue, Fields};
use cm_msgs::sa::{
    self, ClassPortInfo, InformInfo, LinearForwardingTableRecord, LinkRecord, McMemberRecord,
    NodeDescription, NodeRecord, Notice, PKeyTableRecord, PathRecord, PortInfoRecord, Record,
    ServiceRecord, SlToVlMappingTableRecord, SwitchInfoRecord,
};
use cm_msgs::smp::{self, PortInfo};
use serde_json::{Map, Value, json};

/// An attribute that was understood.
pub(super) struct Attribute {
    /// Its name in IBA.
    pub(super) name: &'static str,
    fields: Vec<Field>,
}

struct Field {
    name: &'static str,
    json: Value,
    text: String,
}

/// The attribute of this type at the front of the bytes.
macro_rules! shown {
    ($type:ident, $name:literal, $bytes:expr) => {
        Attribute::new($name, $type::decode($bytes.first_chunk()?).fields())
    };
}

impl Attribute {
    /// An attribute of the SA's class; `None`: not known here, or too few bytes.
    pub(super) fn of_sa(id: u16, bytes: &[u8]) -> Option<Self> {
        Some(match id {
            sa::ATTR_CLASS_PORT_INFO => shown!(ClassPortInfo, "ClassPortInfo", bytes),
            sa::ATTR_INFORM_INFO => shown!(InformInfo, "InformInfo", bytes),
            sa::ATTR_NOTICE => shown!(Notice, "Notice", bytes),
            NodeRecord::ATTRIBUTE => shown!(NodeRecord, "NodeRecord", bytes),
            PortInfoRecord::ATTRIBUTE => shown!(PortInfoRecord, "PortInfoRecord", bytes),
            SlToVlMappingTableRecord::ATTRIBUTE => {
                shown!(SlToVlMappingTableRecord, "SLtoVLMappingTableRecord", bytes)
            }
            SwitchInfoRecord::ATTRIBUTE => shown!(SwitchInfoRecord, "SwitchInfoRecord", bytes),
            LinearForwardingTableRecord::ATTRIBUTE => {
                shown!(
                    LinearForwardingTableRecord,
                    "LinearForwardingTableRecord",
                    bytes
                )
            }
            LinkRecord::ATTRIBUTE => shown!(LinkRecord, "LinkRecord", bytes),
            PKeyTableRecord::ATTRIBUTE => shown!(PKeyTableRecord, "P_KeyTableRecord", bytes),
            PathRecord::ATTRIBUTE => shown!(PathRecord, "PathRecord", bytes),
            McMemberRecord::ATTRIBUTE => shown!(McMemberRecord, "MCMemberRecord", bytes),
            ServiceRecord::ATTRIBUTE => shown!(ServiceRecord, "ServiceRecord", bytes),
            _ => return None,
        })
    }

    /// An attribute of a subnet management packet.
    pub(super) fn of_smp(id: u16, bytes: &[u8]) -> Option<Self> {
        Some(match id {
            smp::ATTR_PORT_INFO => shown!(PortInfo, "PortInfo", bytes),
            _ => return None,
        })
    }

    fn new(name: &'static str, fields: Fields<'_>) -> Self {
        let field = |(name, value)| Field {
            name,
            json: json(value),
            text: text(name, value),
        };
        Self {
            name,
            fields: fields.map(field).collect(),
        }
    }

    /// Fields by name.
    pub(super) fn json(&self) -> Map<String, Value> {
        let fields = self.fields.iter();
        fields
            .map(|field| (field.name.to_owned(), field.json.clone()))
            .collect()
    }

    /// One field a line.
    pub(super) fn text(&self) -> String {
        let fields = self.fields.iter();
        fields
            .map(|Field { name, text, .. }| format!("  {name:<31} {text}\n"))
            .collect()
    }
}

/// Integers as numbers, wider fields as hex digits.
pub(super) fn json(value: FieldValue<'_>) -> Value {
    match value {
        FieldValue::Int(number) => json!(number),
        FieldValue::Bytes(_) => json!(value.to_string()),
    }
}

/// GIDs and names as people write them.
fn text(name: &str, value: FieldValue<'_>) -> String {
    match value {
        FieldValue::Bytes(bytes) if name.ends_with("gid") => {
            bytes.try_into().map(|gid| Gid(gid).to_string()).ok()
        }
        FieldValue::Bytes(bytes) if ["node_description", "service_name"].contains(&name) => {
            let name = bytes.try_into().map(NodeDescription);
            name.map(|name| format!("\"{name}\"")).ok()
        }
        FieldValue::Int(guid) if name.ends_with("guid") => Some(format!("0x{guid:016x}")),
        _ => None,
    }
    .unwrap_or_else(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_guids_and_gids_are_shown_as_people_write_them() {
        let mut node = [0; 108];
        node[16..24].copy_from_slice(&[0xab; 8]);
        node[44..47].copy_from_slice(b"sw1");
        let node = Attribute::of_sa(0x11, &node).unwrap();
        assert_eq!(node.name, "NodeRecord");
        let text = node.text();
        assert!(text.contains("\"sw1\""), "{text}");
        assert!(text.contains("0xabababababababab"), "{text}");
        assert_eq!(node.json()["node_guid"], 0xabab_abab_abab_ababu64);
        assert_eq!(node.json()["node_description"].as_str().unwrap().len(), 128);

        let path = Attribute::of_sa(0x35, &[0; 64]).unwrap();
        assert!(path.text().contains("dgid                            ::\n"));
    }

    #[test]
    fn what_is_too_short_or_unknown_is_nothing() {
        for id in [
            1, 2, 3, 0x11, 0x12, 0x13, 0x14, 0x15, 0x20, 0x31, 0x33, 0x35, 0x38,
        ] {
            assert!(Attribute::of_sa(id, &[0; 200]).is_some(), "{id:#x}");
            assert!(Attribute::of_sa(id, &[0; 5]).is_none(), "{id:#x}");
        }
        assert!(Attribute::of_sa(0x99, &[0; 200]).is_none());
        assert!(Attribute::of_smp(0x15, &[0; 64]).is_some());
    }
}
