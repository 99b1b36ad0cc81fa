#!/bin/sh
# mmdebstrap's customize hook, after the packages: users, keys and units, then the file system into a sparse disk.
# $1: root of the new system, $2: folder with the keys; disk.raw, vmlinuz and initrd are left there.
# From the environment: LAB_UUID, LAB_MIB (size of the file system), LAB_OFFSET (bytes before it).
set -eu
root=$1 out=$2

echo lab > "$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n127.0.1.1\tlab\n' > "$root/etc/hosts"
printf 'UUID=%s / ext4 errors=remount-ro 0 1\n' "$LAB_UUID" > "$root/etc/fstab"
# Empty, not absent: every copy of the image gets its own id, without systemd's slow first-boot presets.
: > "$root/etc/machine-id"

chroot "$root" useradd --create-home --shell /bin/bash ops
chmod 0440 "$root/etc/sudoers.d/ops"
install -d -m 0700 "$root/home/ops/.ssh"
install -m 0600 "$out/id_ed25519.pub" "$root/home/ops/.ssh/authorized_keys"
chroot "$root" chown -R ops:ops /home/ops/.ssh
rm -f "$root"/etc/ssh/ssh_host_*
install -m 0600 "$out/ssh_host_ed25519_key" "$root/etc/ssh/ssh_host_ed25519_key"
install -m 0644 "$out/ssh_host_ed25519_key.pub" "$root/etc/ssh/ssh_host_ed25519_key.pub"

chroot "$root" systemctl --quiet enable systemd-networkd.service
# Each unit costs an emulated processor a second or more, and a timer may wake up while a test measures. Only what
# touches no setting of the machine is masked: mounts of hugepages and debugfs, sysctl and modules stay as they are.
chroot "$root" systemctl --quiet mask systemd-networkd-wait-online.service getty@tty1.service \
  haproxy.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
  systemd-binfmt.service systemd-logind.service systemd-networkd-persistent-storage.service systemd-pstore.service \
  systemd-update-utmp.service systemd-update-utmp-runlevel.service sys-fs-fuse-connections.mount
# Newer than /usr: the first boot has no caches to rebuild (Debian 13's ldconfig.service takes ten seconds for it).
touch "$root/etc/.updated" "$root/var/.updated"
# Without PCIDs, which the emulator lacks, page table isolation flushes the whole TLB at each system call, and that is
# slow to emulate. A panic starts the machine anew: now and then the emulator runs into a breakpoint of a kernel that
# patches its own code while it boots (seen with Linux 6.12). Both stand where an administrator's own options stand, so
# that a test can see them survive.
sed -i 's/^GRUB_CMDLINE_LINUX=.*/GRUB_CMDLINE_LINUX="panic=1 nopti"/' "$root/etc/default/grub"

# The build's own apt and dpkg settings (mirror proxies, left-out documentation) are not the machine's.
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/*.log "$root"/var/log/apt

install -m 0755 "$3/finish.sh" "$root/lab-finish"
cp -L "$root"/vmlinuz "$out/vmlinuz"
cp -L "$root"/initrd.img "$out/initrd"
chmod a+r "$out/vmlinuz" "$out/initrd"

# mmdebstrap has proc, sys and dev mounted in the root: a plain bind shows the files below them instead.
mkdir "$out/bare"
mount --bind "$root" "$out/bare"
# Few inodes, whose tables are all written. The features are named, so that a newer mke2fs makes nothing that the guest's GRUB cannot read.
mkfs.ext4 -q -F -L root -U "$LAB_UUID" -m 0 -N 262144 -d "$out/bare" \
  -O none,has_journal,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,extra_isize \
  -E "offset=$LAB_OFFSET,lazy_itable_init=0,lazy_journal_init=0" "$out/disk.raw" "${LAB_MIB}M"
umount "$out/bare"
rmdir "$out/bare"
