#!/usr/bin/env bash
# Installs the programs of others that the tests talk to. Run it again at will: what is there is left alone.
#
# - boinc-client (Debian): the stock client and boinccmd, for the interoperability tests.
# - ip (Debian's iproute2) and curl: machines of a network are namespaces, and what a port says is looked at.
# - dbus and python3-dbusmock (Debian): a bus of a test's own with a logind on it, for what senses the owner.
# - Xvfb (Debian's xvfb): a real X server without a screen, for the same.
# - kwin_wayland (Debian's kwin-wayland): a real Wayland compositor without a screen, for the same.
# - libboinc-app-dev (Debian) and g++: BOINC's own library for applications, and what compiles one with it.
# - rotel (a Python package that carries an OTLP collector): a real receiver for traces, metrics and logs. It goes into
#   ${FALLOW_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/fallow/peers}, outside the repository.
#
# Tests find rotel by FALLOW_ROTEL (a path), else in PATH, else in that folder. A test whose peer is missing says so
# and passes; with FALLOW_REQUIRE_PEERS=1 it fails.
set -euo pipefail

readonly rotel_version=0.0.1a15
peers=${FALLOW_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/fallow/peers}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing=()
command -v boinc >/dev/null && command -v boinccmd >/dev/null || missing+=(boinc-client)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v ip >/dev/null || missing+=(iproute2)
command -v curl >/dev/null || missing+=(curl)
command -v dbus-daemon >/dev/null || missing+=(dbus)
/usr/bin/python3 -c 'import dbusmock' 2>/dev/null || missing+=(python3-dbusmock)
command -v Xvfb >/dev/null || missing+=(xvfb)
command -v kwin_wayland >/dev/null || missing+=(kwin-wayland)
command -v g++ >/dev/null || missing+=(g++)
[ -e /usr/include/boinc/boinc_api.h ] || missing+=(libboinc-app-dev)
if [ ${#missing[@]} -gt 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get -qq update
    # The package would start a client of its own on this machine: it is only wanted as a program.
    policy=/usr/sbin/policy-rc.d
    ours=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
        ours=1
    fi
    as_root apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
    if [ -n "$ours" ]; then as_root rm -f "$policy"; fi
fi

rotel=$peers/rotel
if [ "$(cat "$rotel.version" 2>/dev/null)" != "$rotel_version" ] || [ ! -x "$rotel" ]; then
    mkdir -p "$peers"
    venv=$(mktemp -d "$peers/venv-XXXXXX")
    trap 'rm -rf "$venv"' EXIT
    python3 -m venv "$venv"
    "$venv/bin/pip" -q --disable-pip-version-check install "rotel==$rotel_version"
    # The package is one native program with a small wrapper in Python: only the program is kept.
    mv "$(find "$venv" -type f -name rotel-agent)" "$rotel"
    echo "$rotel_version" >"$rotel.version"
fi

echo "peers: $(boinc --version 2>/dev/null | head -n 1), rotel $rotel_version in $peers"
