// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes archives in the "newc" format that the kernel unpacks as its initial root file system
//! (Linux Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

const S_IFCHR: u32 = 0o020_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

/// What an archive entry is.
pub(crate) enum Kind<'a> {
    /// A directory.
    Directory,
    /// A regular file with its content.
    File(&'a [u8]),
    /// A symbolic link and where it points.
    Symlink(&'a str),
    /// A character device.
    Device {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

/// An archive under construction. Numbers are hexadecimal, everything is padded to four bytes.
pub(crate) struct Archive<W> {
    out: W,
    next_inode: u32,
}

impl<W: Write> Archive<W> {
    /// Starts an archive.
    pub(crate) fn new(out: W) -> Self {
        Self { out, next_inode: 1 }
    }

    /// Adds an entry; `name` has no leading slash, `permissions` no file type.
    pub(crate) fn add(&mut self, name: &str, permissions: u32, kind: &Kind<'_>) -> io::Result<()> {
        let inode = self.next_inode;
        self.next_inode += 1;
        match *kind {
            Kind::Directory => self.entry(name, inode, S_IFDIR | permissions, &[], (0, 0)),
            Kind::File(content) => self.entry(name, inode, S_IFREG | permissions, content, (0, 0)),
            Kind::Symlink(to) => self.entry(name, inode, S_IFLNK | 0o777, to.as_bytes(), (0, 0)),
            Kind::Device { major, minor } => {
                self.entry(name, inode, S_IFCHR | permissions, &[], (major, minor))
            }
        }
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, 0, &[], (0, 0))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(
        &mut self,
        name: &str,
        inode: u32,
        mode: u32,
        content: &[u8],
        device: (u32, u32),
    ) -> io::Result<()> {
        let size = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{name}: larger than 4 GiB")))?;
        let name_size = u32::try_from(name.len() + 1)
            .map_err(|_| io::Error::other("file name longer than 4 GiB"))?;
        let (uid, gid, links, mtime, check) = (0, 0, 1, 0, 0);
        let (major, minor) = device;
        let fields = [
            inode, mode, uid, gid, links, mtime, size, 0, 0, major, minor, name_size, check,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(header.len() + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        let zeros = [0; 3];
        self.out
            .write_all(&zeros[..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(archive: &[u8], entry: usize, index: usize) -> u32 {
        let at = entry + 6 + 8 * index;
        let text = std::str::from_utf8(&archive[at..at + 8]).expect("ASCII");
        u32::from_str_radix(text, 16).expect("hexadecimal")
    }

    #[test]
    fn entries_are_padded_and_closed_by_a_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive
            .add("a", 0o644, &Kind::File(b"hello"))
            .expect("write to memory");
        let bytes = archive.finish().expect("write to memory");
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(field(&bytes, 0, 1), 0o100_644);
        assert_eq!(field(&bytes, 0, 6), 5, "file size");
        assert_eq!(field(&bytes, 0, 11), 2, "name size with its NUL");
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..117], b"hello");
        assert_eq!(
            &bytes[120..126],
            b"070701",
            "the next entry begins on a multiple of four"
        );
        assert_eq!(&bytes[230..240], b"TRAILER!!!");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn device_numbers_and_types_are_where_the_kernel_looks() {
        let mut archive = Archive::new(Vec::new());
        archive
            .add("dev/console", 0o600, &Kind::Device { major: 5, minor: 1 })
            .expect("write to memory");
        let bytes = archive.finish().expect("write to memory");
        assert_eq!(field(&bytes, 0, 1), 0o020_600);
        assert_eq!((field(&bytes, 0, 9), field(&bytes, 0, 10)), (5, 1));
    }
}
