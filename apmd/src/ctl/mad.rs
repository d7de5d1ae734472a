// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl mad decode`: a management datagram for people or as JSON.

use std::io::Read;

use clap::{Args, Subcommand};
use cm_msgs::fields::{FieldValue, Fields};
use cm_msgs::pretty::Pretty;
use cm_msgs::sa::{self, ClassPortInfo, InformInfo, Notice, PathRecord, PortInfo, SaMad};
use cm_msgs::smp::{self, Smp};
use cm_msgs::{cm, mad};
use serde_json::{Map, Value, json};

use super::{Failure, Options, Outcome, print};

#[derive(Args)]
pub(super) struct Mad {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Decode one
    Decode {
        /// 512 hex digits, white space between them allowed; - for standard input
        #[arg(required = true, value_name = "HEX")]
        hex: Vec<String>,
    },
}

impl Mad {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let Verb::Decode { hex } = self.verb;
        let text = match &hex[..] {
            [dash] if dash == "-" => {
                let mut text = String::new();
                let read = std::io::stdin().read_to_string(&mut text);
                read.map_err(|error| Failure::Failed(format!("standard input: {error}")))?;
                text
            }
            words => words.join(" "),
        };
        let bytes = bytes(&text).map_err(Failure::Failed)?;
        let decoded = decode(&bytes).map_err(|error| Failure::Failed(error.to_string()))?;
        if options.wants_json() {
            options.print_json(&decoded.json())?;
        } else {
            print(&decoded.text())?;
        }
        Ok(Outcome::Ok)
    }
}

/// Bytes from hex digits; a wrong one is named by its place.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.char_indices().filter(|(_, c)| !c.is_whitespace());
    let mut bytes = Vec::new();
    let mut high = None;
    let mut last = 0;
    for (at, c) in digits {
        let digit = c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digit = digit.ok_or_else(|| format!("character {}: {c:?} is no hex digit", at + 1))?;
        last = at + 1;
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match high {
        Some(_) => Err(format!("character {last}: half a byte at the end")),
        None => Ok(bytes),
    }
}

/// A datagram that was understood.
enum Decoded {
    Cm(mad::Header, Box<cm::Message>),
    Attribute(mad::Header, Box<Attribute>),
}

/// What apmd reads of the SA's and of ports.
enum Attribute {
    ClassPortInfo(ClassPortInfo),
    InformInfo(InformInfo),
    Notice(Notice),
    PathRecord(PathRecord),
    PortInfo(PortInfo),
}

/// CM messages in any class, because apmd's is a setting; of the SA's and the ports', what apmd
/// reads.
fn decode(bytes: &[u8]) -> Result<Decoded, cm_msgs::DecodeError> {
    let (header, attribute) = match bytes.get(1) {
        Some(&mad::CLASS_SA) => {
            let sa = SaMad::decode(bytes)?;
            (sa.header, Attribute::of_sa(&sa))
        }
        Some(&(mad::CLASS_SM_LID_ROUTED | mad::CLASS_SM_DIRECTED_ROUTE)) => {
            let smp = Smp::decode(bytes)?;
            (smp.header, Attribute::of_smp(&smp))
        }
        _ => {
            let (header, message) = cm::Message::decode(bytes)?;
            return Ok(Decoded::Cm(header, Box::new(message)));
        }
    };
    match attribute {
        Some(attribute) => Ok(Decoded::Attribute(header, Box::new(attribute))),
        None => Err(cm_msgs::DecodeError::Attribute(header.attribute_id)),
    }
}

impl Attribute {
    fn of_sa(sa: &SaMad) -> Option<Self> {
        let data = &sa.data;
        Some(match sa.header.attribute_id {
            sa::ATTR_CLASS_PORT_INFO => {
                Self::ClassPortInfo(ClassPortInfo::decode(data.first_chunk()?))
            }
            sa::ATTR_INFORM_INFO => Self::InformInfo(InformInfo::decode(data.first_chunk()?)),
            sa::ATTR_NOTICE => Self::Notice(Notice::decode(data.first_chunk()?)),
            sa::ATTR_PATH_RECORD => Self::PathRecord(PathRecord::decode(data.first_chunk()?)),
            _ => return None,
        })
    }

    fn of_smp(smp: &Smp) -> Option<Self> {
        let data = (smp.header.attribute_id == smp::ATTR_PORT_INFO).then_some(&smp.data)?;
        Some(Self::PortInfo(PortInfo::decode(data.first_chunk()?)))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::ClassPortInfo(_) => "ClassPortInfo",
            Self::InformInfo(_) => "InformInfo",
            Self::Notice(_) => "Notice",
            Self::PathRecord(_) => "PathRecord",
            Self::PortInfo(_) => "PortInfo",
        }
    }

    fn fields(&self) -> Fields<'_> {
        match self {
            Self::ClassPortInfo(info) => info.fields(),
            Self::InformInfo(info) => info.fields(),
            Self::Notice(notice) => notice.fields(),
            Self::PathRecord(record) => record.fields(),
            Self::PortInfo(info) => info.fields(),
        }
    }
}

impl Decoded {
    fn json(&self) -> Value {
        let (name, header, fields) = match self {
            Self::Cm(header, message) => (message.name(), header, message.fields()),
            Self::Attribute(header, attribute) => (attribute.name(), header, attribute.fields()),
        };
        let transaction_id = header.transaction_id;
        json!({ "message": name, "transaction_id": transaction_id, "fields": object(fields) })
    }

    fn text(&self) -> String {
        match self {
            Self::Cm(header, message) => Pretty { header, message }.to_string(),
            Self::Attribute(header, attribute) => {
                let mad::Header {
                    mgmt_class,
                    method,
                    status,
                    transaction_id,
                    ..
                } = header;
                let mut text = format!(
                    "{}  class {mgmt_class:#04x}  method {method:#04x}  transaction \
                     0x{transaction_id:016x}  status {status:#06x}",
                    attribute.name()
                );
                if *mgmt_class == mad::CLASS_SA {
                    text.push_str(&format!(" ({})", sa::SaStatus::from(*status)));
                }
                text.push('\n');
                for (name, value) in attribute.fields() {
                    text.push_str(&format!("  {name:<31} {value}\n"));
                }
                text
            }
        }
    }
}

fn object(fields: Fields<'_>) -> Map<String, Value> {
    let value = |value: FieldValue<'_>| match value {
        FieldValue::Int(number) => json!(number),
        FieldValue::Bytes(_) => json!(value.to_string()),
    };
    fields
        .map(|(name, field)| (name.to_owned(), value(field)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_with_white_space() {
        assert_eq!(bytes(" 01 2\n D\tff"), Ok(vec![0x01, 0x2d, 0xff]));
        assert_eq!(
            bytes("012g").unwrap_err(),
            "character 4: 'g' is no hex digit"
        );
        assert_eq!(
            bytes("012").unwrap_err(),
            "character 3: half a byte at the end"
        );
    }

    #[test]
    fn path_records_are_shown_too() {
        let record = PathRecord {
            mtu: 4,
            ..PathRecord::default()
        };
        let mad = SaMad::get_path(7, &record, sa::PathMask::SGID).encode();
        let decoded = decode(&mad).unwrap();
        assert_eq!(decoded.json()["fields"]["mtu"], 4);
        assert_eq!(decoded.json()["transaction_id"], 7);
        assert!(decoded.text().contains("\n  mtu "));
    }

    #[test]
    fn port_info_and_notices_are_shown_too() {
        let mad = Smp::get_port_info(smp::Routing::Directed, 9, 1).encode();
        let decoded = decode(&mad).unwrap();
        assert_eq!(decoded.json()["message"], "PortInfo");
        assert_eq!(decoded.json()["fields"]["lid"], 0);

        let mut mad = SaMad::get_class_port_info(7).encode();
        mad[17] = 2;
        assert_eq!(decode(&mad).unwrap().json()["message"], "Notice");
        mad[17] = 0x99;
        let error = decode(&mad).err().unwrap().to_string();
        assert!(error.contains("0x0099"), "{error}");
    }
}
