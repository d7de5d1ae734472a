// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel shows of its RDMA devices without their being opened: which of them could have connections that
//! migrate, and why the others cannot.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cm_msgs::Gid;

use super::nldev::{Nldev, SubDevice};

const CLASS: &str = "/sys/class/infiniband";

/// PortInfo:CapabilityMask, IsCommunicationManagementSupported.
const CAP_CM: u32 = 1 << 16;

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It has an InfiniBand port at which connections can end.
    InfiniBand,
    /// All its ports are of another kind, which has no automatic path migration: RoCE, iWARP.
    Foreign,
    /// No connection can end at it. Why, in words.
    NoEndpoint(String),
}

/// All devices of the kernel of which it can be said, by name, whether or not user space may use them.
pub(crate) fn devices() -> BTreeMap<String, Kind> {
    // A kernel without netlink of RDMA has no sub-devices either.
    let sub_devices = Nldev::open().and_then(|mut nldev| nldev.sub_devices());
    devices_in(Path::new(CLASS), &sub_devices.unwrap_or_default())
}

/// Whether a connection may end at a port: `ports/1` of a device in sysfs.
pub(crate) fn is_endpoint(device: &str, port: u8) -> bool {
    let dir = Path::new(CLASS).join(device);
    is_endpoint_in(&dir.join("ports").join(port.to_string()))
}

fn devices_in(class: &Path, sub_devices: &[SubDevice]) -> BTreeMap<String, Kind> {
    let named = entries(class).filter_map(|path| {
        let name = path.file_name()?.to_str()?.to_owned();
        let sub_device = sub_devices.iter().find(|device| device.name == name);
        let kind = match sub_device.filter(|device| device.is_smi) {
            Some(SubDevice { parent, .. }) => Some(Kind::NoEndpoint(format!(
                "it is the subnet management interface of {parent}, and no endpoint of connections"
            ))),
            None => kind_in(&path),
        };
        Some((name, kind?))
    });
    named.collect()
}

/// What the device of a directory is; `None` while it has no port.
fn kind_in(device: &Path) -> Option<Kind> {
    let node_type = text(&device.join("node_type")).unwrap_or_default();
    for (number, what) in [("2:", "a switch"), ("3:", "a router")] {
        if node_type.starts_with(number) {
            return Some(Kind::NoEndpoint(format!(
                "it is {what}, and no endpoint of connections"
            )));
        }
    }
    let ports: Vec<PathBuf> = entries(&device.join("ports")).collect();
    let layers: Vec<io::Result<String>> = ports
        .iter()
        .map(|port| text(&port.join("link_layer")))
        .collect();
    let is_infiniband =
        |layer: &io::Result<String>| matches!(layer, Ok(layer) if layer == "InfiniBand");
    let infiniband: Vec<&PathBuf> = ports
        .iter()
        .zip(&layers)
        .filter(|(_, layer)| is_infiniband(layer))
        .map(|(port, _)| port)
        .collect();
    if infiniband.iter().any(|port| is_endpoint_in(port)) {
        return Some(Kind::InfiniBand);
    }
    if let Some(port) = infiniband.first() {
        let why = match unreadable(&port.join("state")) {
            Some(why) => why,
            None => "its ports have neither a GID nor communication management: they are no endpoints of connections".to_owned(),
        };
        return Some(Kind::NoEndpoint(why));
    }
    match layers.into_iter().find(|layer| layer.is_ok()) {
        Some(_) => Some(Kind::Foreign),
        None => ports
            .iter()
            .find_map(|port| unreadable(&port.join("link_layer")))
            .map(Kind::NoEndpoint),
    }
}

/// Why a file that the kernel shows cannot be read. One that is not there is of a device that is half there or half gone,
/// for now.
fn unreadable(file: &Path) -> Option<String> {
    let error = text(file).err()?;
    let is_absent = error.kind() == ErrorKind::NotFound;
    let why = || {
        format!(
            "the kernel does not tell how its ports are: {}: {error}",
            file.display()
        )
    };
    (!is_absent).then(why)
}

/// Whether a port has a GID or communication management: an endpoint has both once its drivers are loaded, and the
/// ports of a switch in an adapter neither, if they can be asked at all.
fn is_endpoint_in(port: &Path) -> bool {
    if unreadable(&port.join("state")).is_some() {
        return false;
    }
    let gid = text(&port.join("gids/0")).ok();
    let gid = gid.and_then(|gid| gid.parse::<Gid>().ok());
    let has_gid = gid.is_some_and(|gid| gid.interface_id().0 != 0);
    let mask = text(&port.join("cap_mask")).ok();
    let mask = mask.and_then(|mask| u32::from_str_radix(mask.trim_start_matches("0x"), 16).ok());
    has_gid || mask.is_some_and(|mask| mask & CAP_CM != 0)
}

fn text(file: &Path) -> io::Result<String> {
    let bytes = fs::read(file)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree like that of sysfs.
    struct Class(PathBuf);

    impl Class {
        fn new(name: &str) -> Self {
            let name = format!("apmd-class-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn write(&self, file: &str, text: &str) -> &Self {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().expect("a directory")).expect("room");
            fs::write(path, text).expect("room");
            self
        }

        /// A port as an endpoint has it.
        fn endpoint(&self, port: &str) -> &Self {
            self.write(&format!("{port}/link_layer"), "InfiniBand\n")
                .write(&format!("{port}/cap_mask"), "0x00010000\n")
                .write(
                    &format!("{port}/gids/0"),
                    "fe80:0000:0000:0000:0005:ad00:0010:0001\n",
                )
        }

        fn kinds(&self, sub_devices: &[SubDevice]) -> BTreeMap<String, Kind> {
            devices_in(&self.0, sub_devices)
        }
    }

    impl Drop for Class {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("it was there");
        }
    }

    fn why(kinds: &BTreeMap<String, Kind>, device: &str) -> String {
        match &kinds[device] {
            Kind::NoEndpoint(why) => why.clone(),
            kind => panic!("{device}: {kind:?}"),
        }
    }

    #[test]
    fn devices_are_known_by_what_their_ports_are() {
        let class = Class::new("kinds");
        class
            .endpoint("mlx4_0/ports/2")
            .write("mlx4_0/ports/1/link_layer", "Ethernet\n")
            .write("rxe0/ports/1/link_layer", "Ethernet\n")
            .write("rxe0/node_type", "1: CA\n")
            .write("siw0/ports/1/link_layer", "Ethernet\n")
            .write("siw0/node_type", "4: RNIC\n")
            .endpoint("sw0/ports/1")
            .write("sw0/node_type", "2: switch\n")
            .write("half_there/node_type", "1: CA\n");
        let kinds = class.kinds(&[]);
        assert_eq!(kinds["mlx4_0"], Kind::InfiniBand);
        assert_eq!(
            (&kinds["rxe0"], &kinds["siw0"]),
            (&Kind::Foreign, &Kind::Foreign)
        );
        assert!(why(&kinds, "sw0").contains("a switch"));
        assert!(!kinds.contains_key("half_there"));
        assert!(devices_in(Path::new("/nowhere"), &[]).is_empty());
    }

    #[test]
    fn a_sub_device_for_management_is_no_endpoint() {
        let class = Class::new("smi");
        class.endpoint("mlx5_0/ports/1").endpoint("smi1/ports/1");
        let sub_device = |name: &str, is_smi| SubDevice {
            name: name.to_owned(),
            parent: "mlx5_0".to_owned(),
            is_smi,
        };
        let kinds = class.kinds(&[sub_device("smi1", true)]);
        assert_eq!(kinds["mlx5_0"], Kind::InfiniBand);
        assert!(why(&kinds, "smi1").contains("interface of mlx5_0"));
        let kinds = class.kinds(&[sub_device("smi1", false)]);
        assert_eq!(
            kinds["smi1"],
            Kind::InfiniBand,
            "of a type that is not known yet"
        );
    }

    #[test]
    fn a_port_without_gid_and_communication_management_is_no_endpoint() {
        let class = Class::new("ports");
        let port = |device: &str| format!("{device}/ports/1");
        for device in ["both", "no_cm", "no_gid", "neither", "no_files"] {
            class.endpoint(&port(device));
        }
        for device in ["no_cm", "neither"] {
            class.write(&format!("{}/cap_mask", port(device)), "0x02504868\n");
        }
        for device in ["no_gid", "neither"] {
            class.write(
                &format!("{}/gids/0", port(device)),
                "fe80:0000:0000:0000:0000:0000:0000:0000\n",
            );
        }
        for file in ["gids/0", "cap_mask"] {
            let path = class.0.join(port("no_files")).join(file);
            // To read a directory is an error, as reading a file of a device in switch mode is.
            fs::remove_file(&path).expect("it was there");
            fs::create_dir(&path).expect("room");
        }
        let kinds = class.kinds(&[]);
        for device in ["both", "no_cm", "no_gid"] {
            assert_eq!(kinds[device], Kind::InfiniBand, "{device}");
        }
        for device in ["neither", "no_files"] {
            assert!(
                why(&kinds, device).contains("neither a GID nor"),
                "{device}"
            );
        }
    }

    #[test]
    fn a_device_whose_files_cannot_be_read_costs_no_other() {
        let class = Class::new("einval");
        class.endpoint("mlx5_0/ports/1");
        fs::create_dir_all(class.0.join("mlx5_1/ports/1/link_layer")).expect("room");
        // It has a GID, but the state of its port cannot be read.
        class.endpoint("mlx5_2/ports/1");
        fs::create_dir(class.0.join("mlx5_2/ports/1/state")).expect("room");
        let kinds = class.kinds(&[]);
        assert_eq!(kinds["mlx5_0"], Kind::InfiniBand);
        assert!(why(&kinds, "mlx5_1").contains("ports/1/link_layer"));
        assert!(why(&kinds, "mlx5_2").contains("ports/1/state"));
    }
}
