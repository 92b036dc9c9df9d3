# Read by the other scripts: finds the repository's folder and uv, installs uv where it is missing.
# Works in any POSIX shell. Leaves $UV set.

cd "$(dirname "$0")/.." || exit 1

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif have sudo; then sudo "$@"; else return 1; fi
}

# Where uv goes when it can go nowhere else.
OWN="${XDG_DATA_HOME:-$HOME/.local/share}/unbroken-uv"

find_python() {
    for python in python3.13 python3.12 python3.11 python3.14 python3 python; do
        if have "$python" && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            PYTHON=$python
            return 0
        fi
    done
    return 1
}

# A Python package manager that marks its Python as externally managed refuses pip; a small environment of its own
# for uv disturbs nothing there.
install_uv() {
    find_python || { say "Python 3.11 or newer is needed, and was not found."; exit 1; }
    say "Installing uv ..."
    if "$PYTHON" -m pip install --quiet --user uv 2>/dev/null; then
        UV=$("$PYTHON" -c 'import os, site; print(os.path.join(site.getuserbase(), "bin", "uv"))')
        [ -x "$UV" ] && return 0
    fi
    for try in plain with-apt; do
        if [ "$try" = with-apt ]; then # Debian's Python comes without pip and venv
            have apt-get && as_root apt-get update -qq >/dev/null 2>&1 &&
                as_root apt-get install -y -qq python3-venv >/dev/null 2>&1 || break
        fi
        if "$PYTHON" -m venv "$OWN" 2>/dev/null && "$OWN/bin/python" -m pip install --quiet uv; then
            UV="$OWN/bin/uv"
            return 0
        fi
        rm -rf "$OWN"
    done
    say "uv could not be installed: neither 'pip install --user uv' nor an environment in $OWN worked."
    say "Install it by hand (https://docs.astral.sh/uv/) and start again."
    exit 1
}

if uv --version >/dev/null 2>&1; then # asked, not looked up: a version manager's shim may lead nowhere
    UV=uv
elif [ -x "$OWN/bin/uv" ]; then
    UV="$OWN/bin/uv"
elif [ -x "$HOME/.local/bin/uv" ]; then
    UV="$HOME/.local/bin/uv"
else
    install_uv
fi
