#!/bin/sh
# Installs the Debian packages that some tests need, if it may. Tests without their packages are skipped with a reason.
# No service is started or left enabled: the tests start their own.
# With the argument `soak`, it also installs the packages of the long tests.
set -eu
case "${1-}" in
'' | soak) ;;
*)
    echo "usage: $0 [soak]" >&2
    exit 2
    ;;
esac
PATH="$PATH:/sbin:/usr/sbin" # often missing for users other than root
missing=
needs() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
command -v google-chrome >/dev/null 2>&1 || needs chromium chromium
# Playwright's driver is linked against it
ldconfig -p 2>/dev/null | grep -q 'libatomic\.so\.1' || missing="$missing libatomic1"
needs slurmctld slurm-wlm
needs munged munge
needs sshd openssh-server
needs debootstrap debootstrap
needs ip iproute2
needs_file() { # FILE PACKAGE
    [ -e "$1" ] || missing="$missing $2"
}
if [ "${1-}" = soak ]; then # Slurm's database, the proxy of JupyterHub, and Kubernetes and Horovod, which are built from their sources
    needs cmake cmake
    needs c++ g++
    needs configurable-http-proxy node-configurable-http-proxy
    needs mariadbd mariadb-server
    needs slurmdbd slurmdbd
    needs go golang-go
    needs dpkg-source dpkg-dev
    needs_file /usr/share/gocode/src/github.com/modern-go/reflect2 golang-github-modern-go-reflect2-dev
    needs_file /usr/share/gocode/src/github.com/json-iterator/go golang-github-json-iterator-go-dev
    needs etcd etcd-server
    needs containerd containerd
    needs runc runc
    needs_file /usr/lib/cni/bridge containernetworking-plugins
    needs_file /bin/busybox busybox-static
fi
[ -n "$missing" ] || exit 0
as_root=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        echo "not root and no sudo: tests that need$missing will be skipped" >&2
        exit 0
    fi
fi
command -v apt-get >/dev/null 2>&1 || {
    echo "apt-get not found: tests that need$missing will be skipped" >&2
    exit 0
}
echo "installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# Debian runs this program before it starts a service; exit status 101 forbids it
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap '$as_root rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
fi
# shellcheck disable=SC2086  # a list of package names
{ $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
    echo "apt-get could not install$missing: the tests that need it will be skipped" >&2
disable() { # PACKAGE SERVICE…
    case "$missing " in *" $1 "*) shift && $as_root systemctl disable --quiet "$@" || true ;; esac
}
if [ -d /run/systemd/system ]; then
    disable slurm-wlm slurmctld slurmd
    disable mariadb-server mariadb
    disable slurmdbd slurmdbd
    disable munge munge
    disable etcd-server etcd
    disable containerd containerd
    disable openssh-server ssh
fi
