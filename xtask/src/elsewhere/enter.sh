# SPDX-License-Identifier: MIT OR Apache-2.0
# enter ROOT SOURCES TARGET CARGO_HOME TOOLCHAIN COMMAND...: runs a command with ROOT as its root directory, and with
# the sources, cargo's directory and Rust where they are outside. It is process 1 of namespaces of its own: when it ends,
# for whatever reason, the kernel ends all processes in them and takes the mounts away.
set -eu
root=$1 sources=$2 target=$3 cargo=$4 toolchain=$5
shift 5

# bind FROM TO [ro]
bind() {
	mount --bind "$1" "$2"
	[ $# -eq 2 ] || mount -o "remount,bind,$3" "$2"
}

# The root of a namespace is a mount.
mount --bind "$root" "$root"
mount -t tmpfs -o mode=755 dev "$root/dev"
for node in full null random tty urandom zero; do
	: >"$root/dev/$node"
	bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for number in 0:stdin 1:stdout 2:stderr; do
	ln -s "/proc/self/fd/${number%:*}" "$root/dev/${number#*:}"
done
mount -t proc proc "$root/proc"
# Packages set the kernel's parameters when they are installed. These are the machine's.
bind "$root/proc/sys" "$root/proc/sys" ro
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=755 run "$root/run"
bind /etc/resolv.conf "$root/etc/resolv.conf" ro
# A proxy of this machine's network may need its own certificate authority. The release's file belongs to a package.
if [ -r "${SSL_CERT_FILE:-}" ]; then
	cp "$SSL_CERT_FILE" "$root/run/certificates"
	export SSL_CERT_FILE=/run/certificates
fi

mkdir -p "$root$sources" "$root$cargo" "$root$toolchain"
bind "$sources" "$root$sources" ro
bind "$target" "$root$sources/target"
bind "$cargo" "$root$cargo"
bind "$toolchain" "$root$toolchain" ro
# Cargo would prefer rustup's proxies there to the toolchain's own programs, and they find no rustup here.
[ ! -d "$root$cargo/bin" ] || mount -t tmpfs -o ro,mode=755 bin "$root$cargo/bin"

# Not chroot: inside one the kernel refuses user namespaces, which some tests create.
cd "$root"
pivot_root . mnt
umount -l /mnt

status=0
env --chdir="$sources" "$@" || status=$?
exit "$status"
