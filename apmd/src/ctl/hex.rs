// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of a datagram from the texts in which people have them: hex digits in any grouping, with `0x` or colons; what
//! `hexdump`, `xxd`, `od`, `tcpdump -x` and Wireshark print, with offsets; a line of labels that ends with the bytes.

/// A MAD's header: what is shorter is no datagram.
const LEAST: usize = 24;

/// What may stand between bytes.
const SEPARATORS: [char; 13] = [
    ':', '-', ',', ';', '_', '{', '}', '[', ']', '(', ')', '"', '\'',
];

/// Bytes of what is given, as one datagram.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if let Some(dump) = Dump::of(&lines) {
        return dump.bytes();
    }
    let labelled: Option<Vec<_>> = lines.iter().map(|line| labelled(line)).collect();
    match labelled.filter(|lines| !lines.is_empty()) {
        Some(lines) => Ok(lines.concat()),
        None => digits(text).map_err(|(at, what)| format!("character {at}: {what}")),
    }
}

/// The last word of a line that begins with other words than bytes.
fn labelled(line: &str) -> Option<Vec<u8>> {
    let (labels, last) = line.trim_end().rsplit_once(char::is_whitespace)?;
    let own = digits(last).ok().filter(|own| own.len() >= LEAST)?;
    digits(labels).is_err().then_some(own)
}

/// Bytes of hex digits, with `0x` or `\x` before each group, if any; or at which character, counted from 1, there is
/// something else.
fn digits(text: &str) -> Result<Vec<u8>, (usize, String)> {
    let mut bytes = Vec::new();
    let mut high = None;
    let mut last = 0;
    let mut characters = text.chars().enumerate().peekable();
    while let Some((at, c)) = characters.next() {
        let is_separator = c.is_whitespace() || SEPARATORS.contains(&c);
        if is_separator && high.is_none() || c.is_whitespace() {
            continue;
        }
        let is_prefix = high.is_none() && matches!(c, '0' | '\\');
        if is_prefix
            && characters
                .next_if(|&(_, x)| matches!(x, 'x' | 'X'))
                .is_some()
        {
            continue;
        }
        let digit = c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digit = digit.ok_or_else(|| (at + 1, format!("{c:?} is no hex digit")))?;
        last = at + 1;
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match high {
        Some(_) => Err((last, "half a byte at the end".to_owned())),
        None => Ok(bytes),
    }
}

/// Lines that begin with their offset.
struct Dump<'a> {
    lines: Vec<(Option<usize>, &'a str)>,
    /// Groups of four digits are numbers of this machine's, least significant byte first.
    has_words: bool,
}

impl<'a> Dump<'a> {
    /// The lines, if the first has offset 0 and others follow on.
    fn of(lines: &[&'a str]) -> Option<Self> {
        let has_words = has_words(lines);
        let in_radix = |radix| {
            let lines: Vec<_> = lines.iter().map(|line| offset(line, radix)).collect();
            let offsets: Vec<usize> = lines.iter().filter_map(|&(offset, _)| offset).collect();
            let first = lines
                .first()
                .and_then(|&(offset, rest)| offset.filter(|_| !rest.is_empty()));
            let is_dump = first == Some(0) && offsets.is_sorted();
            is_dump.then_some(Self { lines, has_words })
        };
        // od prints octal offsets by default.
        let radixes = [16, 8, 10].into_iter().filter_map(in_radix);
        let fits = |dump: &Self| dump.bytes().is_ok();
        radixes.clone().find(fits).or_else(|| in_radix(16))
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut of_line: Vec<u8> = Vec::new();
        for (at, &(offset, rest)) in self.lines.iter().enumerate() {
            let next = self.lines[at + 1..].iter().find_map(|&(offset, _)| offset);
            let Some(offset) = offset else {
                // hexdump's word for lines that are like the one before.
                let is_repeat = rest.trim() == "*" && !of_line.is_empty();
                let until = next.filter(|_| is_repeat);
                let until = until.ok_or_else(|| format!("line {}: it has no offset", at + 1))?;
                while bytes.len() + of_line.len() <= until.min(MOST) {
                    bytes.extend(&of_line);
                }
                continue;
            };
            if offset != bytes.len() {
                let have = bytes.len();
                return Err(format!(
                    "line {}: offset {offset:#x} after {have:#x} bytes",
                    at + 1
                ));
            }
            let room = next.map_or(of_line.len(), |next| next - offset);
            of_line = until_text(rest, if room == 0 { MOST } else { room });
            if self.has_words {
                of_line.chunks_exact_mut(2).for_each(<[u8]>::reverse);
            }
            bytes.extend(&of_line);
        }
        Ok(bytes)
    }
}

/// More than any datagram or table of records has.
const MOST: usize = 1 << 20;

/// Whether it is what `hexdump` and `od -x` print: seven digits, no colon, then groups of four.
fn has_words(lines: &[&str]) -> bool {
    let mut with_bytes = lines.iter().filter_map(|line| line.split_once(' '));
    with_bytes.all(|(offset, rest)| {
        let mut words = rest.split_ascii_whitespace();
        offset.len() == 7 && !offset.ends_with(':') && words.all(|word| word.len() == 4)
    })
}

/// A line's offset and what follows it: a colon after the number, or four digits and more.
fn offset(line: &str, radix: u32) -> (Option<usize>, &str) {
    let text = line.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let digits = word.strip_suffix(':').unwrap_or(word);
    let is_marked = digits.len() < word.len();
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let number = usize::from_str_radix(digits, radix).ok();
    let is_offset = is_marked || (4..=8).contains(&digits.len());
    match number.filter(|_| is_offset) {
        Some(number) => (Some(number), rest),
        None => (None, text),
    }
}

/// The bytes of a line of a dump, at most `most`. They end where the text column begins: after three blanks, or at the
/// first word that is not hexadecimal.
fn until_text(rest: &str, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let columns = rest.trim_start().split("   ").next();
    for word in columns.unwrap_or_default().split_ascii_whitespace() {
        match digits(word) {
            Ok(own) if bytes.len() + own.len() <= most => bytes.extend(own),
            _ => break,
        }
    }
    bytes
}

/// The MAD in a captured packet: behind the local route header, a global one if there is one, and those of an unreliable
/// datagram (IBA tables 7, 12, 17, 20), with what ibdump and Wireshark's captures have before them (ERF: 16 bytes and
/// extensions of 8); or in Ethernet, behind a global route header (RoCE v1) or IP and UDP (RoCE v2). Anything else is left
/// as it is.
pub(super) fn mad_of(bytes: Vec<u8>) -> Vec<u8> {
    const BTH_AND_DETH: usize = 12 + 8;
    const UD_SEND_ONLY: u8 = 0x64;
    const MAD: usize = 256;
    let mad_at = |transport: usize| {
        let at = transport + BTH_AND_DETH;
        let mad = bytes.get(at..at + MAD)?;
        (bytes[transport] == UD_SEND_ONLY && mad[0] == 1).then_some(mad)
    };
    let local_routes = [0, 16, 24, 32];
    let behind_local = local_routes
        .into_iter()
        .filter_map(|at| transport_behind(&bytes, at));
    let behind_ethernet = transport_in_ethernet(&bytes);
    let mad = behind_local.chain(behind_ethernet).find_map(mad_at);
    mad.map(<[u8]>::to_vec).unwrap_or(bytes)
}

/// Where the transport header is, if there is a local route header at `at`.
fn transport_behind(bytes: &[u8], at: usize) -> Option<usize> {
    const LRH: usize = 8;
    const GRH: usize = 40;
    let header = bytes.get(at..at + LRH)?;
    match (header[0] & 0xf, header[1] & 3) {
        (0, 2) => Some(at + LRH),
        (0, 3) => Some(at + LRH + GRH),
        _ => None,
    }
}

/// Where the transport header is in an Ethernet frame of RoCE, with a VLAN tag or without.
fn transport_in_ethernet(bytes: &[u8]) -> Option<usize> {
    const IPV6: usize = 40;
    const UDP: usize = 8;
    const PORT: [u8; 2] = 4791_u16.to_be_bytes();
    let two = |at: usize| bytes.get(at..at + 2).map(|two| [two[0], two[1]]);
    let tag = if two(12)? == [0x81, 0] { 4 } else { 0 };
    let network = 14 + tag;
    let udp = match two(12 + tag)? {
        // RoCE v1: a global route header looks like that of IPv6.
        [0x89, 0x15] => return Some(network + IPV6),
        [0x08, 0x00] => network + usize::from(bytes.get(network)? & 0xf) * 4,
        [0x86, 0xdd] => network + IPV6,
        _ => return None,
    };
    (two(udp + 2)? == PORT).then_some(udp + UDP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mad() -> Vec<u8> {
        let mut mad = vec![0; 256];
        for (at, byte) in mad.iter_mut().enumerate().take(40) {
            *byte = at as u8 + 1;
        }
        // The column of characters shows it as what could be bytes.
        mad[240..].copy_from_slice(b"ab cd ef 01 23 4");
        mad
    }

    fn line(bytes: &[u8], group: usize, with: &str) -> String {
        let groups: Vec<String> = bytes
            .chunks(group)
            .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        groups.join(with)
    }

    fn characters(bytes: &[u8]) -> String {
        let shown = |&byte: &u8| {
            if (32..127).contains(&byte) {
                byte as char
            } else {
                '.'
            }
        };
        bytes.iter().map(shown).collect()
    }

    fn dump(head: impl Fn(usize) -> String, group: usize, bar: &str) -> String {
        let mad = mad();
        let lines = mad.chunks(16).enumerate().map(|(at, own)| {
            let hex = line(own, group, " ");
            format!("{}{hex}  {bar}{}{bar}\n", head(at * 16), characters(own))
        });
        lines.collect()
    }

    #[test]
    fn digits_in_any_grouping() {
        assert_eq!(bytes(" 01 2\n D\tff"), Ok(vec![0x01, 0x2d, 0xff]));
        let mad = mad();
        for text in [
            line(&mad, 256, ""),
            line(&mad, 1, " "),
            line(&mad, 1, ":"),
            line(&mad, 2, " "),
            line(&mad, 1, "-"),
            format!("0x{}", line(&mad, 256, "")),
            format!("0x{}", line(&mad, 1, " 0x")),
            format!("0x{}", line(&mad, 1, ", 0x")),
            format!("\\x{}", line(&mad, 1, "\\x")),
            format!("0x{}", line(&mad, 4, "\n0x")).to_uppercase(),
            line(&mad, 16, "\r\n"),
            format!("0\n{}", &line(&mad, 256, "")[1..]),
        ] {
            assert_eq!(bytes(&text), Ok(mad.clone()), "{text}");
        }
    }

    #[test]
    fn dumps_with_offsets() {
        for text in [
            dump(|at| format!("{at:08x}  "), 1, "|"),
            dump(|at| format!("{at:08x}: "), 2, ""),
            dump(|at| format!("\t0x{at:04x}:  "), 2, ""),
            dump(|at| format!("{at:04x}   "), 1, " "),
            dump(|at| format!("{at:03x}: "), 4, ""),
        ] {
            assert_eq!(bytes(&text), Ok(mad()), "{text}");
        }
    }

    /// What `hexdump`, `od -t x1` and `od -x` print by default.
    #[test]
    fn dumps_of_words_and_with_octal_offsets() {
        let mad = mad();
        let of = |offset: fn(usize) -> String, words: bool| {
            let lines = mad.chunks(16).enumerate().map(|(at, own)| {
                let mut own = own.to_vec();
                if words {
                    own.chunks_exact_mut(2).for_each(<[u8]>::reverse);
                }
                let hex = line(&own, if words { 2 } else { 1 }, " ");
                format!("{} {hex}\n", offset(at * 16))
            });
            format!("{}{}\n", lines.collect::<String>(), offset(mad.len()))
        };
        for text in [
            of(|at| format!("{at:07x}"), true),
            of(|at| format!("{at:07o}"), true),
            of(|at| format!("{at:07o}"), false),
            of(|at| format!("{at:07}"), false),
        ] {
            assert_eq!(bytes(&text), Ok(mad.clone()), "{text}");
        }
        let array = format!("{{ 0x{} }};", line(&mad, 1, ", 0x"));
        assert_eq!(bytes(&array), Ok(mad.clone()));
        assert_eq!(bytes(&format!("\"{}\"", line(&mad, 256, ""))), Ok(mad));
    }

    #[test]
    fn the_mad_behind_what_captures_have_before_it() {
        let mut mad = mad();
        mad[0] = 1;
        let with = |before: &[u8]| {
            let mut transport = vec![0; 20];
            transport[0] = 0x64;
            [before, &transport, &mad, &[0; 6]].concat()
        };
        let local = [0xf0, 2, 0, 1, 0, 71, 0, 2];
        let ethernet = |kind: [u8; 2]| [&[2; 12], &kind[..]].concat();
        let udp = [0xc0, 0, 0x12, 0xb7, 0, 0, 0, 0];
        let ipv4 = [&[0x45][..], &[0; 19]].concat();
        for before in [
            [&[9; 16][..], &local].concat(),
            [&[9; 24][..], &local].concat(),
            [&ethernet([0x89, 0x15])[..], &[0; 40]].concat(),
            [&ethernet([0x08, 0x00])[..], &ipv4, &udp].concat(),
            [&ethernet([0x86, 0xdd])[..], &[0; 40], &udp].concat(),
            [&[2; 12][..], &[0x81, 0, 0, 5, 0x08, 0x00], &ipv4, &udp].concat(),
        ] {
            assert_eq!(mad_of(with(&before)), mad, "{before:02x?}");
        }
        let other = with(&[&ethernet([0x08, 0x00])[..], &ipv4, &[0; 8]].concat());
        assert_eq!(mad_of(other.clone()), other, "another port");
    }

    #[test]
    fn lines_that_hexdump_leaves_out() {
        let all = dump(|at| format!("{at:08x}  "), 1, "|");
        let lines: Vec<&str> = all.lines().collect();
        // Offsets 0x30 to 0xe0 are zeros.
        let text = format!("{}\n*\n{}\n00000100\n", lines[..4].join("\n"), lines[15]);
        assert_eq!(bytes(&text), Ok(mad()), "{text}");
        let without = format!("{}\n{}\n", lines[..4].join("\n"), lines[15]);
        assert!(bytes(&without).is_err_and(|error| error.contains("line 5: offset 0xf0")));
    }

    #[test]
    fn a_last_line_that_is_not_full() {
        let text = "0000  01 02 03 04 05 06 07 08  ........\n0008  09 0a         ab\n";
        assert_eq!(bytes(text), Ok((1..=10).collect()));
    }

    #[test]
    fn a_line_of_labels_ends_with_the_bytes() {
        let text = format!(
            "infiniband.pcap:7 class07 method03 {}",
            line(&mad(), 256, "")
        );
        assert_eq!(bytes(&text), Ok(mad()));
    }

    #[test]
    fn what_is_no_byte_is_named_by_its_place() {
        for (text, wanted) in [
            ("0107x", "character 5: 'x' is no hex digit"),
            ("012g", "character 4: 'g' is no hex digit"),
            ("012", "character 3: half a byte at the end"),
            ("01 0", "character 4: half a byte at the end"),
            ("01\n0g", "character 5: 'g' is no hex digit"),
        ] {
            assert_eq!(bytes(text), Err(wanted.to_owned()));
        }
    }

    #[test]
    fn the_mad_of_a_captured_packet() {
        let mut mad = mad();
        mad[0] = 1;
        for (lnh, headers) in [(2, 28), (3, 68)] {
            let mut packet = vec![0; headers];
            packet[0] = 0xf0;
            packet[1] = lnh;
            packet[headers - 20] = 0x64;
            packet.extend(&mad);
            packet.extend([0; 6]);
            assert_eq!(mad_of(packet), mad);
        }
        assert_eq!(mad_of(mad.clone()), mad);
        for len in 0..80 {
            assert_eq!(mad_of(vec![0x81; len]), vec![0x81; len]);
        }
        assert!(mad_of(vec![]).is_empty());
        assert_eq!(mad_of(vec![0, 2, 0]), [0, 2, 0]);
    }
}
