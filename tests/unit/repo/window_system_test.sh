#!/usr/bin/env bash
# The desktop app configures with X11 and without it, says which it found, and needs none of X11's
# headers then.
#   window_system_test.sh ROOT IMGUI    (root of the tree, what the launcher keeps of imgui-bundle)
set -euo pipefail

root=$1 imgui=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(window_system LANGUAGES C CXX)
include("$root/app/cmake/AttnscopeUi.cmake")
END

# says WHAT LINE: configured with the options behind them, the app is built and the line is in what
# it says.
says() {
  local what=$1 line=$2
  shift 2
  local out
  out=$(cmake -S "$work" -B "$work/$what" -DATTNSCOPE_UI_SOURCES="$imgui" \
        -DATTNSCOPE_GUI=ON "$@") ||
    { echo "FAIL: $what does not configure: $out" >&2; exit 1; }
  grep -E -- "^-- GUI: yes \(imgui [0-9.]+, GLFW [0-9.]*, $line" <<<"$out" ||
    { echo "FAIL: $what does not say \"$line\": $out" >&2; exit 1; }
}

says without "no X11: windows by GLFW alone" -DCMAKE_DISABLE_FIND_PACKAGE_X11=ON
headers=$("${CXX:-c++}" -std=c++20 -DATTNSCOPE_WITHOUT_X11 -I"$root" -M \
          "$root/app/gui/x11_part.cpp")
if grep -q "X11/" <<<"$headers"; then
  echo "FAIL: x11_part.cpp reads headers of X11 where there are none" >&2
  exit 1
fi
# Where X11 is, it is taken.
if printf '#include <X11/Xlib.h>\n' | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1; then
  says with "X11\)"
fi
