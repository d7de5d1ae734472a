// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibacm_addr.cfg`: `NAME DEVICE PORT PKEY` a line, where the P_Key is hexadecimal or `default`.

use std::net::IpAddr;

use cm_msgs::PKey;
use cm_msgs::acm::{Address, Name};

use super::{Parsed, lines};
use crate::endpoints::Naming;

/// Reads the file's text. IP addresses count as well, for interfaces that are not IPoIB's.
pub fn names(text: &str) -> Parsed<Vec<Naming>> {
    let mut value = Vec::new();
    let mut skipped = Vec::new();
    for (number, line) in lines(text) {
        match naming(line) {
            Ok(naming) => value.push(naming),
            Err(what) => skipped.push((number, what.to_owned())),
        }
    }
    Parsed { value, skipped }
}

fn naming(line: &str) -> Result<Naming, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(device), Some(port), Some(pkey)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("want NAME DEVICE PORT PKEY");
    };
    Ok(Naming {
        address: address(name)?,
        device: device.to_owned(),
        port: port.parse().map_err(|_| "want a port's number")?,
        pkey: partition(pkey)?,
    })
}

fn address(text: &str) -> Result<Address, &'static str> {
    match text.parse() {
        Ok(IpAddr::V4(ip)) => Ok(Address::Ip(ip)),
        Ok(IpAddr::V6(ip)) => Ok(Address::Ip6(ip)),
        Err(_) => Name::new(text)
            .map(Address::Name)
            .map_err(|_| "a name has at most 63 bytes"),
    }
}

fn partition(text: &str) -> Result<Option<PKey>, &'static str> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(None);
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let key = u16::from_str_radix(digits.unwrap_or(text), 16);
    key.map(|key| Some(PKey(key)))
        .map_err(|_| "want a p_key in hexadecimal, or default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ib_acme() {
        let text = "# comment\nnode31      ibv_device0 1 default\nnode31-1    ibv_device0 1 0x00FF\n\
                    node31-2 ibv_device0 2 00ff\n10.0.0.1 ibv_device0 2 default\nnode31 ibv_device0\n\
                    node31 ibv_device0 one default\nnode31 ibv_device0 1 key\n";
        let named = names(text);
        let naming = |name: &str, port, pkey: Option<u16>| Naming {
            address: Address::Name(Name::new(name).unwrap()),
            device: "ibv_device0".to_owned(),
            port,
            pkey: pkey.map(PKey),
        };
        let want = [
            naming("node31", 1, None),
            naming("node31-1", 1, Some(0xff)),
            naming("node31-2", 2, Some(0xff)),
            Naming {
                address: Address::Ip([10, 0, 0, 1].into()),
                ..naming("node31", 2, None)
            },
        ];
        assert_eq!(named.value, want);
        let lines: Vec<_> = named.skipped.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [6, 7, 8]);
    }
}
