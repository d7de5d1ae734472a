// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controllers of NVMe over RDMA in sysfs, and their keep-alive.

use std::net::SocketAddr;
use std::path::Path;

use super::text_file;

pub(crate) const CLASS: &str = "/sys/class/nvme";
const SIZE_MAX: u64 = 4096;

/// A controller that this host uses by NVMe over RDMA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NvmeController {
    pub(crate) name: String,
    pub(crate) target: SocketAddr,
    /// In seconds; 0: none.
    pub(crate) keep_alive: u32,
}

/// Those over RDMA whose keep-alive the kernel tells; `class`: their directory. A host without NVMe has none.
pub(crate) fn controllers(class: &Path) -> Vec<NvmeController> {
    let Ok(entries) = std::fs::read_dir(class) else {
        return Vec::new();
    };
    let controllers = entries.filter_map(|entry| {
        let directory = entry.ok()?.path();
        let said = |name: &str| {
            let text = text_file::read(&directory.join(name), SIZE_MAX).ok()?;
            Some(text.trim_end().to_owned())
        };
        if said("transport")? != "rdma" {
            return None;
        }
        Some(NvmeController {
            name: directory.file_name()?.to_str()?.to_owned(),
            target: target(&said("address")?)?,
            keep_alive: said("kato")?.parse().ok()?,
        })
    });
    controllers.collect()
}

/// Of an address such as `traddr=10.0.0.2,trsvcid=4420`.
fn target(address: &str) -> Option<SocketAddr> {
    let said = |key: &str| {
        let mut parts = address.split(',').filter_map(|part| part.split_once('='));
        parts.find_map(|(name, value)| (name == key).then_some(value))
    };
    let (ip, port) = (said("traddr")?, said("trsvcid")?);
    Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_read_as_the_kernel_writes_them() {
        let class = std::env::temp_dir().join(format!("apmd-nvme-{}", std::process::id()));
        let write = |name: &str, files: &[(&str, &str)]| {
            let directory = class.join(name);
            std::fs::create_dir_all(&directory).unwrap();
            for (file, text) in files {
                std::fs::write(directory.join(file), text).unwrap();
            }
        };
        let address = "traddr=10.0.0.2,trsvcid=4420,host_traddr=10.0.0.1\n";
        let rdma = [
            ("transport", "rdma\n"),
            ("address", address),
            ("kato", "5\n"),
        ];
        write("nvme0", &rdma);
        write("nvme1", &[("transport", "pcie\n")]);
        write("nvme2", &rdma[..2]);
        let expected = NvmeController {
            name: "nvme0".to_owned(),
            target: "10.0.0.2:4420".parse().unwrap(),
            keep_alive: 5,
        };
        assert_eq!(controllers(&class), [expected]);
        std::fs::remove_dir_all(&class).unwrap();
        assert_eq!(controllers(&class), []);
    }

    #[test]
    fn addresses_have_keys() {
        let v6 = target("traddr=fe80::1,trsvcid=1");
        assert_eq!(v6, "[fe80::1]:1".parse().ok());
        for wrong in ["", "traddr=10.0.0.2", "traddr=x,trsvcid=1", "4420"] {
            assert_eq!(target(wrong), None, "{wrong}");
        }
    }
}
