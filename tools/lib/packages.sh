# Installs Debian packages that are missing. Sourced by test.sh and demo.sh.

# What building the library and the program needs.
build_packages=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev)

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    echo "$(basename "$0"): '$*' needs root: run as root or install sudo" >&2
    return 1
  fi
}

# Fetches the package lists. One source that does not answer, often a third party's, must not stop
# the rest: what is missing in the end fails with a message of its own.
update_lists() {
  as_root apt-get update -qq || echo "$(basename "$0"): apt-get update failed in part; going on" >&2
}

# install_missing PACKAGE...: asks apt only for those that dpkg does not know as installed, and
# touches nothing when there are none.
install_missing() {
  local package missing=()
  for package in "$@"; do
    if ! dpkg-query -W -f '${db:Status-Status}\n' "$package" 2> /dev/null | grep -qx installed; then
      missing+=("$package")
    fi
  done
  if [ ${#missing[@]} -eq 0 ]; then
    return 0
  fi
  if ! command -v apt-get > /dev/null; then
    echo "$(basename "$0"): no apt-get here; install the equivalents of: ${missing[*]}" >&2
    return 1
  fi
  echo "== Installing ${missing[*]}"
  update_lists
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" > /dev/null
}
