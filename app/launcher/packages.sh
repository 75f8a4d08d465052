# shellcheck shell=bash disable=SC2034,SC2154 # variables of ./attnscope, which reads this file
#
# What the launcher installs and fetches: tables, apt, pip. say, fail and step are ./attnscope's.

# Debian 12 packages, with the versions this was tested with. Other versions are taken as they come.
PACKAGES='
g++               4:12.2.0-3
cmake             3.25.1-1
ninja-build       1.11.1-2~deb12u1
ccache            4.8+really4.7.5-1
libopenblas-dev   0.3.21+ds-4
libtorch-dev      1.13.1+dfsg-4
libfmt-dev        9.1.0+ds1-2
libcli11-dev      2.1.2+ds-1
nlohmann-json3-dev 3.11.2-2
libzstd-dev       1.5.4+dfsg2-5
libarchive-dev    3.6.2-1+deb12u5
'
# What tests and benchmarks are built and run with.
TEST_PACKAGES='
libgtest-dev      1.12.1-0.2
libbenchmark-dev  1.7.1-1
librapidcheck-dev 0~1033-08b5058-3
patch             2.7.6-7
clang-format-16   1:16.0.6-15~deb12u1
python3-numpy     1:1.24.2-1+deb12u1
zstd              1.5.4+dfsg2-5
'
# What the nightly tests are built with too.
CLANG_PACKAGES='
clang-16          1:16.0.6-15~deb12u1
clang-tidy-16     1:16.0.6-15~deb12u1
libclang-rt-16-dev 1:16.0.6-15~deb12u1
llvm-16           1:16.0.6-15~deb12u1
'
# Where the system has no libtorch-dev (Ubuntu 24.04): wheels for x86-64, fetched with pip and used
# for their CPU half, with their SHA-256. libtorch_cpu.so does not load without the two of NVIDIA.
TORCH_WHEELS='
nvidia-cuda-runtime==13.0.96  7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cupti==13.0.85    4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
torch==2.11.0                 0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756'
TORCH_MB=545 # of all wheels together
# The desktop app: what it is compiled with (-dev) and runs with, a software renderer among it, and
# the package on PyPI that holds the sources of Dear ImGui and ImPlot, with its SHA-256.
GUI_PACKAGES='
libglfw3-dev      3.3.8-1
libgl-dev         1.6.0-1
libopengl-dev     1.6.0-1
libegl-dev        1.6.0-1
libx11-dev        2:1.8.4-2+deb12u2
libegl-mesa0      22.3.6-1+deb12u2
libgl1-mesa-dri   22.3.6-1+deb12u2
fonts-inter       4.0~beta7+ds-1
fonts-jetbrains-mono 2.242+ds-3
'
GUI_SOURCES='imgui-bundle==1.93.0  10ad1dab8258a6787b4f07bb926b08d0efc648a7906242568c8dd778c5e719bf'
GUI_MB=54

torch=$build/deps/libtorch # what is kept of the wheels
wheels=$build/deps/wheels
gui_sources=$build/deps/imgui-bundle # what is kept of the package
sdist=$build/deps/imgui-bundle.fetch

# Is a libtorch given by the user?
torch_given() {
  [ -n "${Torch_DIR:-}" ] && return 0
  local prefix suffix IFS=:
  for prefix in ${CMAKE_PREFIX_PATH:-}; do
    for suffix in Torch share/cmake/Torch lib/cmake/Torch; do
      [ -e "$prefix/$suffix/TorchConfig.cmake" ] && return 0
    done
  done
  return 1
}

# The first column of a table.
names_of() { sed -n 's/^\([^ ][^ ]*\).*/\1/p' <<<"$1"; }

package_names() {
  if torch_given; then
    names_of "$PACKAGES" | grep -vx -e libtorch-dev -e libopenblas-dev
  else
    names_of "$PACKAGES"
  fi
  [ -z "$needs_tests" ] || names_of "$TEST_PACKAGES" | without_given_python
  [ -z "$needs_clang" ] || names_of "$CLANG_PACKAGES"
  [ "$gui" = OFF ] || names_of "$GUI_PACKAGES"
}

# ATTNSCOPE_PYTHON names a Python of the user's, which has numpy or has not.
without_given_python() {
  if [ -n "${ATTNSCOPE_PYTHON:-}" ]; then grep -vx python3-numpy; else cat; fi
}

missing_packages() {
  local names installed
  names=$(package_names)
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $names 2>/dev/null |
    sed -n 's/^installed //p')
  printf '%s\n' "$names" | grep -vxF -e "${installed:-none}"
}

has_candidate() {
  local policy
  policy=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)
  grep -q 'Candidate: [^(]' <<<"$policy"
}

# Are there package lists at all? Without them nothing is known of what is not installed.
has_lists() {
  local policy
  policy=$(LC_ALL=C apt-cache policy 2>/dev/null)
  grep -q '[ ,]c=main' <<<"$policy"
}

no_libtorch() {
  fail 4 "this system ($(uname -m)) has no package libtorch-dev." \
    "Set CMAKE_PREFIX_PATH to any libtorch or PyTorch from 1.13 on and start again, for example" \
    "  export CMAKE_PREFIX_PATH=\$(echo VENV/lib/python3*/site-packages/torch)"
}

# Runs in the background, in a shell of its own (see step).
apt() {
  exec "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

# OpenBLAS is many times faster than the plain reference BLAS, which an earlier choice may have
# left in its place.
prefer_openblas() {
  local library link
  for library in libblas.so.3 liblapack.so.3; do
    for link in /usr/lib/*/"$library"; do
      case $(readlink -f "$link") in
        */blas/* | */lapack/*)
          "${as_root[@]}" update-alternatives --set \
            "$library-$(basename "$(dirname "$link")")" \
            "$(dirname "$link")/openblas-pthread/$library" || return 0
          ;;
      esac
    done
  done
}

# The libtorch that was fetched before, if all of it is there, counts as given from here on.
use_fetched_torch() {
  if [ -z "$deps" ] && ! torch_given && [ -e "$torch/torch/lib/libtorch_cpu.so" ] &&
    [ "$(cat "$torch/.wheels" 2>/dev/null)" = "$TORCH_WHEELS" ]; then
    export CMAKE_PREFIX_PATH=$torch/torch${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  fi
}

has_pip() { python3 -m pip --version >/dev/null 2>&1; }

# The wheels are for one Python and one C library, but nothing of Python in them is used: any pip
# may fetch them.
pip_download() {
  exec env TMPDIR="$wheels/tmp" python3 -m pip download --require-hashes --no-deps \
    --only-binary=:all: --no-cache-dir --disable-pip-version-check --progress-bar off \
    --implementation cp --python-version 3.12 --abi cp312 --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --dest "$wheels" --requirement "$wheels/requirements.txt"
}

# What the C++ build and the program need of the wheels, laid out as the libraries' own run paths
# expect it.
unpack_wheels() {
  rm -rf "$torch" "$torch.new"
  python3 -c '
import glob, sys, zipfile
libraries = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp",
             "/lib/libcudart.so", "/lib/libcupti.so")
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            if name.startswith(("torch/include/", "torch/share/")) or any(
                    library in name for library in libraries):
                file.extract(name, sys.argv[2])
' "$wheels" "$torch.new" &&
    printf '%s' "$TORCH_WHEELS" >"$torch.new/.wheels" && mv "$torch.new" "$torch"
}

# Each wheel by itself: what is complete is kept when a later one is interrupted, and pip checks it
# again.
fetch_torch() {
  say "  No package libtorch-dev here: fetching PyTorch's libtorch ($TORCH_MB MB, once) into" \
    "$build/deps; the references compute with it."
  if [ "$(cat "$wheels/.wheels" 2>/dev/null)" != "$TORCH_WHEELS" ]; then rm -rf "$wheels"; fi
  rm -rf "$wheels/tmp"
  mkdir -p "$wheels/tmp"
  printf '%s' "$TORCH_WHEELS" >"$wheels/.wheels" ||
    fail 4 "cannot write to $wheels." "Is the disk full?"
  local name hash log
  while read -r name hash; do
    [ -n "$name" ] || continue
    log=$logs/fetch-${name%%=*}.log
    printf '%s --hash=sha256:%s\n' "$name" "$hash" >"$wheels/requirements.txt"
    step "Fetching $name" "$log" pip_download && continue
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
      show_failure 4 "the check of $name" "$log" \
        "What came is not the file that was asked for; it is not used. If a mirror or proxy" \
        "changes files, go around it, or set CMAKE_PREFIX_PATH to any libtorch or PyTorch from" \
        "1.13 on."
    fi
    show_failure 4 "fetching $name" "$log" \
      "Check the network and the disk and start again; complete files are kept." \
      "Or set CMAKE_PREFIX_PATH to any libtorch or PyTorch from 1.13 on."
  done <<<"$TORCH_WHEELS"
  step "Unpacking libtorch" "$logs/unpack-torch.log" unpack_wheels ||
    show_failure 4 "unpacking libtorch" "$logs/unpack-torch.log" \
      "Is the disk full? 1.1 GB are needed for a while. To fetch it anew, remove $build/deps."
  rm -rf "$wheels"
  use_fetched_torch
}

# Takes libtorch out of `missing` where apt has none: it is fetched. pip may have to be installed.
plan_torch() {
  grep -qx libtorch-dev <<<"$missing" || return 0
  if has_candidate libtorch-dev; then return 0; fi
  [ "$(uname -m)" = x86_64 ] || no_libtorch
  fetch=yes
  missing=$(grep -vx -e libtorch-dev -e libopenblas-dev <<<"$missing")
  need_pip
}

need_pip() {
  has_pip || grep -qx python3-pip <<<"$missing" ||
    missing=${missing:+$missing$'\n'}python3-pip
}

# Are the sources of the desktop app's libraries there, all of them?
gui_fetched() {
  local file
  for file in imgui/imgui/imgui.cpp implot/implot/implot.cpp hello_imgui/stb_image_write.h \
    hello_imgui/Font_Awesome_6_Free-Solid-900.otf \
    imgui_test_engine/imgui_test_engine/imgui_test_engine/imgui_te_engine.cpp; do
    [ -e "$gui_sources/$file" ] || return 1
  done
  [ "$(cat "$gui_sources/.source" 2>/dev/null)" = "$GUI_SOURCES" ]
}

# Takes the desktop app's packages out of `missing` where apt has none, unless it is insisted on:
# all of them if it cannot be compiled then, one if it only looks plainer.
plan_gui() {
  [ "$gui" = AUTO ] || return 0
  local name
  for name in $(names_of "$GUI_PACKAGES") python3-pip; do
    grep -qx -- "$name" <<<"$missing" || continue
    has_candidate "$name" && continue
    case $name in
      *-dev | python3-pip)
        say "  No package $name here: building without the desktop app."
        without_gui=said
        fetch_gui=''
        missing=$(grep -vxF -e "$(names_of "$GUI_PACKAGES")" <<<"$missing")
        [ -n "$fetch" ] || missing=$(grep -vx python3-pip <<<"$missing")
        return 0
        ;;
    esac
    say "  No package $name here: the desktop app does without it."
    missing=$(grep -vx -- "$name" <<<"$missing")
  done
}

# Must the package lists be read before anything is known of what is missing? Without those of the
# desktop app the build goes on, so that they are not looked for again at every build.
lists_are_old() {
  [ -n "$missing" ] || return 1
  has_lists || return 0
  local name
  for name in $missing; do
    if [ "$gui" = AUTO ] && names_of "$GUI_PACKAGES" | grep -qx -- "$name"; then continue; fi
    has_candidate "$name" || return 0
  done
  return 1
}

# The package's own build back end is not needed for its sources and takes longer to fetch than
# they do: this one answers pip's questions instead.
write_backend() {
  local name=${GUI_SOURCES%%=*} version=${GUI_SOURCES#*==}
  version=${version%% *}
  mkdir -p "$sdist/backend/scikit_build_core" "$sdist/tmp" &&
    : >"$sdist/backend/scikit_build_core/__init__.py" &&
    cat >"$sdist/backend/scikit_build_core/build.py" <<END
import os


def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = "${name//-/_}-$version.dist-info"
    os.mkdir(os.path.join(folder, info))
    with open(os.path.join(folder, info, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: $name\\nVersion: $version\\n")
    return info
END
}

sdist_download() {
  exec env TMPDIR="$sdist/tmp" PYTHONPATH="$sdist/backend${PYTHONPATH:+:$PYTHONPATH}" \
    python3 -m pip download --require-hashes --no-deps --no-binary=:all: --no-build-isolation \
    --ignore-requires-python --no-cache-dir --disable-pip-version-check --progress-bar off \
    --dest "$sdist" --requirement "$sdist/requirements.txt"
}

# What the build needs of the package, its licences included. The files get today's date: ninja
# sees that they changed when another version took their place.
unpack_sdist() {
  local from='*/external' te='*/external/imgui_test_engine/imgui_test_engine/imgui_test_engine'
  local hello='*/external/hello_imgui/hello_imgui'
  rm -rf "$gui_sources.new" "$gui_sources.old"
  mkdir "$gui_sources.new" &&
    tar -xzmf "$(echo "$sdist"/*.tar.gz)" -C "$gui_sources.new" --no-same-owner \
      --wildcards --no-wildcards-match-slash \
      --transform='s,^[^/]*/external/,,' --transform='s,^hello_imgui/.*/,hello_imgui/,' \
      "$from/imgui/imgui/*.cpp" "$from/imgui/imgui/*.h" "$from/imgui/imgui/LICENSE.txt" \
      "$from/imgui/imgui/backends/imgui_impl_glfw.*" \
      "$from/imgui/imgui/backends/imgui_impl_opengl3*" \
      "$from/implot/implot/*.cpp" "$from/implot/implot/*.h" "$from/implot/implot/LICENSE" \
      "$te/*.cpp" "$te/*.h" "$te/LICENSE.txt" "$te/thirdparty" \
      "$hello/external/stb_hello_imgui/stb_image_write.h" \
      "$hello/hello_imgui_assets/fonts/Font_Awesome_6_Free-Solid-900.otf" \
      "$hello/hello_imgui_assets/fonts/LICENSE-FontAwesome.txt" &&
    printf '%s' "$GUI_SOURCES" >"$gui_sources.new/.source" || return 1
  if [ -e "$gui_sources" ]; then mv "$gui_sources" "$gui_sources.old"; fi
  mv "$gui_sources.new" "$gui_sources" && rm -rf "$gui_sources.old"
}

fetch_gui_sources() {
  local name=${GUI_SOURCES%% *} hash=${GUI_SOURCES##* }
  local log=$logs/fetch-${GUI_SOURCES%%=*}.log
  local without="Or go on without the desktop app: ATTNSCOPE_GUI=OFF ./attnscope"
  say "  Fetching the sources of Dear ImGui and ImPlot ($GUI_MB MB, once) into $build/deps; the" \
    "desktop app is built with them."
  rm -rf "$sdist/tmp"
  { write_backend &&
    printf '%s --hash=sha256:%s\n' "$name" "$hash" >"$sdist/requirements.txt"; } ||
    fail 4 "cannot write to $sdist." "Is the disk full?"
  if ! step "Fetching $name" "$log" sdist_download; then
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
      show_failure 4 "the check of $name" "$log" \
        "What came is not the file that was asked for; it is not used. If a mirror or proxy" \
        "changes files, go around it." "$without"
    fi
    show_failure 4 "fetching $name" "$log" "Check the network and the disk and start again." \
      "$without"
  fi
  step "Unpacking $name" "$logs/unpack-${GUI_SOURCES%%=*}.log" unpack_sdist || {
    rm -rf "$sdist"
    show_failure 4 "unpacking $name" "$logs/unpack-${GUI_SOURCES%%=*}.log" \
      "Is the disk full? Start again to fetch it anew." "$without"
  }
  rm -rf "$sdist"
}

# How to go on with less, where some of what is missing is the desktop app's.
gui_advice() {
  if [ "$gui" != OFF ] && grep -qxF -e "$(names_of "$GUI_PACKAGES")" <<<"$missing"; then
    printf 'Without the desktop app less is needed: ATTNSCOPE_GUI=OFF ./attnscope'
  fi
}

install_packages() {
  local missing='' fetch='' fetch_gui='' name line
  if [ "$gui" != OFF ] && ! gui_fetched; then fetch_gui=yes; fi
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    # Elsewhere CMake tells what is missing; without GLFW the sources would be of no use.
    if [ -n "$fetch_gui" ] && has_pip && pkg-config --exists glfw3 2>/dev/null; then
      fetch_gui_sources
    fi
    return 0
  fi
  missing=$(missing_packages)
  if [ -n "$fetch_gui" ]; then need_pip; fi
  [ -n "$missing$fetch_gui" ] || return 0
  as_root=()
  if [ -n "$missing" ] && [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      if has_lists; then
        plan_torch
        plan_gui
      fi
      line=${missing//$'\n'/ }
      [ -z "$missing" ] ||
        fail 4 "packages are missing and this user may not install them. Run, then start again:" \
          "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends $line'" \
          "$(gui_advice)"
    fi
  fi
  if lists_are_old; then
    step "Reading package lists" "$logs/apt-update.log" apt update ||
      show_failure 4 "apt-get update" "$logs/apt-update.log" \
        "Check the network and /etc/apt." "$(gui_advice)"
  fi
  if [ -z "$fetch" ]; then plan_torch; fi
  plan_gui
  for name in $missing; do
    has_candidate "$name" && continue
    fail 4 "no package $name in this system's sources." \
      "Add its repository (on Ubuntu: universe), or set ATTNSCOPE_DEPS to a folder that holds it." \
      "$(gui_advice)"
  done
  if [ -n "$missing" ]; then apt_install; fi
  if [ -n "$fetch" ]; then fetch_torch; fi
  if [ -n "$fetch_gui" ]; then fetch_gui_sources; fi
}

# Installs what `missing` names. OpenBLAS is of no use to a libtorch that brings its own.
apt_install() {
  line=${missing//$'\n'/ }
  say "  Installing: $line"
  # Lists that are too old name files that are gone: read them again, once.
  # shellcheck disable=SC2086
  step "Installing packages" "$logs/apt-install.log" \
    apt install -y --no-install-recommends $missing || {
    step "Reading package lists" "$logs/apt-update.log" apt update
    step "Installing packages" "$logs/apt-install.log" \
      apt install -y --no-install-recommends $missing
  } || show_failure 4 "apt-get install" "$logs/apt-install.log" \
    "Run: apt-get update && apt-get install -y --no-install-recommends $line" "$(gui_advice)"
  if [ -z "$fetch" ]; then prefer_openblas >>"$logs/apt-install.log" 2>&1; fi
}
