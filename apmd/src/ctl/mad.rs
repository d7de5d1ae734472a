// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl mad decode`: a management datagram for people or as JSON.

use std::io::Read;

use clap::{Args, Subcommand};
use cm_msgs::mad::{self, Header};
use cm_msgs::pretty::Pretty;
use cm_msgs::sa::{SaMessage, SaStatus};
use cm_msgs::smp::Smp;
use cm_msgs::{DecodeError, cm};
use serde_json::{Map, Value, json};

use super::attribute::{self, Attribute};
use super::{Failure, Options, Outcome, hex};

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
        /// 256 bytes (of the SA's tables, more) as hex digits, with 0x, colons or white space or without; a dump with
        /// offsets; a captured packet; - for standard input
        #[arg(required = true, value_name = "HEX")]
        hex: Vec<String>,
    },
}

impl Mad {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let Verb::Decode { hex } = self.verb;
        let text = match &hex[..] {
            [dash] if dash == "-" => {
                let mut text = Vec::new();
                let read = std::io::stdin().read_to_end(&mut text);
                read.map_err(|error| Failure::Failed(format!("standard input: {error}")))?;
                String::from_utf8_lossy(&text).into_owned()
            }
            words => words.join(" "),
        };
        let bytes = hex::mad_of(hex::bytes(&text).map_err(Failure::Failed)?);
        let decoded = decode(&bytes).map_err(Failure::Failed)?;
        options.show(&decoded.json(), || decoded.text())?;
        Ok(Outcome::Ok)
    }
}

/// A datagram that was understood.
enum Decoded {
    Cm(Header, Box<cm::Message>),
    Attribute(Header, Attribute),
    Table(Header, Vec<Attribute>),
}

/// CM messages in any class, because apmd's is a setting; of the SA's and the ports', what apmd
/// reads.
fn decode(bytes: &[u8]) -> Result<Decoded, String> {
    match bytes.get(1) {
        Some(&mad::CLASS_SA) => sa_message(bytes),
        Some(&(mad::CLASS_SM_LID_ROUTED | mad::CLASS_SM_DIRECTED_ROUTE)) => {
            let smp = Smp::decode(bytes).map_err(|error| error.to_string())?;
            let id = smp.header.attribute_id;
            let attribute = Attribute::of_smp(id, &smp.data[..]);
            let attribute = attribute.ok_or_else(|| unknown(id))?;
            Ok(Decoded::Attribute(smp.header, attribute))
        }
        _ => {
            let decoded = cm::Message::decode(bytes);
            let (header, message) = decoded.map_err(|error| error.to_string())?;
            Ok(Decoded::Cm(header, Box::new(message)))
        }
    }
}

fn sa_message(bytes: &[u8]) -> Result<Decoded, String> {
    let message = SaMessage::decode(bytes).map_err(|error| error.to_string())?;
    let header = message.header;
    let attribute = |record| {
        let attribute = Attribute::of_sa(header.attribute_id, record);
        attribute.ok_or_else(|| unknown(header.attribute_id))
    };
    if header.method != mad::METHOD_GET_TABLE_RESP {
        return Ok(Decoded::Attribute(header, attribute(message.data)?));
    }
    let record_len = message.record_len().map_err(|error| error.to_string())?;
    let records = message.data.chunks_exact(record_len.max(1));
    let records: Result<_, _> = records.map(attribute).collect();
    Ok(Decoded::Table(header, records?))
}

fn unknown(attribute_id: u16) -> String {
    DecodeError::Attribute(attribute_id).to_string()
}

impl Decoded {
    fn header(&self) -> &Header {
        let (Self::Cm(header, _) | Self::Attribute(header, _) | Self::Table(header, _)) = self;
        header
    }

    fn json(&self) -> Value {
        let transaction_id = self.header().transaction_id;
        match self {
            Self::Cm(_, message) => {
                let fields = message.fields();
                let fields: Map<_, _> = fields
                    .map(|(name, value)| (name.to_owned(), attribute::json(value)))
                    .collect();
                json!({ "message": message.name(), "transaction_id": transaction_id, "fields": fields })
            }
            Self::Attribute(_, attribute) => {
                let (name, fields) = (attribute.name, attribute.json());
                json!({ "message": name, "transaction_id": transaction_id, "fields": fields })
            }
            Self::Table(_, records) => {
                let name = records.first().map(|record| record.name);
                let records: Vec<_> = records.iter().map(|record| json!(record.json())).collect();
                json!({ "message": name, "transaction_id": transaction_id, "records": records })
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Cm(header, message) => Pretty { header, message }.to_string(),
            Self::Attribute(header, attribute) => {
                format!("{}{}", heading(attribute.name, header), attribute.text())
            }
            Self::Table(header, records) => {
                let mut text = heading(&format!("{} records", records.len()), header);
                for record in records {
                    text.push_str(&format!("{}\n{}", record.name, record.text()));
                }
                text
            }
        }
    }
}

/// The line above an attribute's fields.
fn heading(name: &str, header: &Header) -> String {
    let Header {
        mgmt_class,
        method,
        status,
        transaction_id,
        ..
    } = header;
    let mut text = format!(
        "{name}  class {mgmt_class:#04x}  method {method:#04x}  transaction \
         0x{transaction_id:016x}  status {status:#06x}"
    );
    if *mgmt_class == mad::CLASS_SA {
        text.push_str(&format!(" ({})", SaStatus::from(*status)));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::sa::{PathRecord, Record, Rmpp, SaMad};
    use cm_msgs::smp;

    #[test]
    fn path_records_are_shown_too() {
        let mad = SaMad::get(7, &PathRecord::any().mtu(4)).encode();
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

        let mut mad = SaMad::get(7, &PathRecord::any()).encode();
        mad[17] = 2;
        assert_eq!(decode(&mad).unwrap().json()["message"], "Notice");
        mad[17] = 0x99;
        let error = decode(&mad).err().unwrap();
        assert!(error.contains("0x0099"), "{error}");
    }

    #[test]
    fn tables_are_shown_record_by_record() {
        let mut mad = SaMad::get_table(7, &PathRecord::any());
        mad.header.method = mad::METHOD_GET_TABLE_RESP;
        mad.sa.attribute_offset = 8;
        mad.sa.rmpp = Rmpp {
            version: 1,
            packet_type: 1,
            flags: 7,
            ..Rmpp::default()
        };
        let mut bytes = mad.encode()[..56].to_vec();
        bytes.resize(56 + 3 * 64, 0);
        let table = decode(&bytes).unwrap();
        assert_eq!(table.json()["message"], "PathRecord");
        assert_eq!(table.json()["records"].as_array().unwrap().len(), 3);
        assert!(
            table
                .text()
                .starts_with("3 records  class 0x03  method 0x92")
        );
        bytes.pop();
        let error = decode(&bytes).err().unwrap();
        assert_eq!(error, "191 bytes are no whole number of records of 64");
    }
}
