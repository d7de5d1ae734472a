# SPDX-License-Identifier: MIT OR Apache-2.0
# For the scripts of the VM: who has which HCAs. /etc/vm/hosts has a line "NAME DEVICE..." for each host,
# and one for the subnet manager, whose name is "sm". Each host has its apmd, with a directory of its own.

hosts() { sed -n 's/^\(host-[a-z]\) .*/\1/p' /etc/vm/hosts; }

devices_of() { # NAME
	sed -n "s/^$1 //p" /etc/vm/hosts
}

subnet_manager_device() {
	local devices
	read -ra devices <<<"$(devices_of sm)"
	echo "${devices[0]}"
}

# "DEVICE PORT" for each port of a host's HCAs, which must be in this network namespace.
ports_of() { # HOST
	local device port
	for device in $(devices_of "$1"); do
		for port in "/sys/class/infiniband/$device/ports"/*; do echo "$device ${port##*/}"; done
	done
}

runtime_dir_of() { # HOST
	if [ "$1" = host-a ]; then echo /run/apmd; else echo "/run/$1/apmd"; fi
}
