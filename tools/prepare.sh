# Read by tools/check and tools/quickstart: installs what is missing and builds attn.
# Expects $root, the checkout; sets $build, the build folder. Arguments go to `meson setup`.
# shellcheck shell=sh
: "${root:?}"

say() {
    printf '%s\n' "$*" >&2
}

# The Debian packages of what this machine lacks. oneDNN and gnuplot can be done without: attn has
# matrix products of its own, and `attn train` says so in one line where it cannot draw.
find_missing() {
    missing='' missing_optional=''
    command -v cc >/dev/null || command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
    command -v meson >/dev/null || missing="$missing meson"
    command -v ninja >/dev/null || command -v samu >/dev/null || missing="$missing ninja-build"
    command -v python3 >/dev/null || missing="$missing python3"
    command -v nm >/dev/null || missing="$missing binutils"
    command -v pkg-config >/dev/null || missing="$missing pkg-config"
    pkg-config --exists jansson 2>/dev/null || missing="$missing libjansson-dev"
    pkg-config --exists popt 2>/dev/null || missing="$missing libpopt-dev"
    pkg-config --exists check 2>/dev/null || missing="$missing check"
    command -v gnuplot >/dev/null || missing_optional="$missing_optional gnuplot-nox"
    printf '#include <oneapi/dnnl/dnnl.h>\n' | "${CC:-cc}" -E - >/dev/null 2>&1 ||
        missing_optional="$missing_optional libdnnl-dev"
    missing=${missing# } missing_optional=${missing_optional# }
}

# apt_install PACKAGE...: with the lists that are there, else with new ones.
apt_install() {
    set -- apt-get install -y -q --no-install-recommends "$@"
    as_root "$@" >"$log" 2>&1 && return
    as_root apt-get update -q >"$log" 2>&1 && as_root "$@" >>"$log" 2>&1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@" </dev/null
    elif [ -t 0 ]; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@" </dev/null
    fi
}

install_missing() {
    find_missing
    [ -n "$missing$missing_optional" ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "This system has no apt. Debian calls what is missing here:"
        [ -z "$missing" ] || say "  $missing"
        [ -z "$missing_optional" ] || say "  $missing_optional (can be done without)"
        [ -z "$missing" ] || exit 1
        return 0
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        [ -n "$missing" ] || return 0
        say "Neither root nor sudo here. As root, run:"
        say "  apt-get install $missing $missing_optional"
        exit 1
    fi
    log=$(mktemp)
    say "== installing $missing $missing_optional"
    # shellcheck disable=SC2086 # a list of words
    if [ -n "$missing" ] && ! apt_install $missing; then
        tail -20 "$log" >&2
        say "apt-get could not install: $missing"
        exit 1
    fi
    for package in $missing_optional; do
        apt_install "$package" || say "going on without $package, which apt-get could not install"
    done
    rm -f "$log"
}

# A build folder from another meson or another place is made anew.
configure() {
    if [ ! -e "$build/meson-private/coredata.dat" ]; then
        meson setup "$build" "$root" "$@"
    else
        meson setup --reconfigure "$build" "$root" "$@" ||
            meson setup --wipe "$build" "$root" "$@"
    fi
}

prepare() {
    install_missing
    build=$root/build-release
    if ! mkdir -p "$build" 2>/dev/null || [ ! -w "$build" ]; then
        build=${XDG_CACHE_HOME:-$HOME/.cache}/attn/build-release
        mkdir -p "$build" || exit 1
    fi
    say "== building in $build"
    if ! configure -Dtools=enabled -Dtests=enabled "$@" >"$build/setup.log" 2>&1; then
        tail -30 "$build/setup.log" >&2
        say "meson could not set up the build; all of its words are in $build/setup.log"
        exit 1
    fi
    sed -n '/matrix products *:/p; /threads *:/p' "$build/setup.log" >&2
    if ! meson compile -C "$build" >"$build/compile.log" 2>&1; then
        grep -A 20 -E 'error|FAILED' "$build/compile.log" | head -60 >&2
        say "the build failed; all of its words are in $build/compile.log"
        exit 1
    fi
    grep -A 5 'warning:' "$build/compile.log" >&2 || :
}
