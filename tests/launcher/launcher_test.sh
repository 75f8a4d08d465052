#!/usr/bin/env bash
# Tests of the launcher on a copy of it in an empty folder, with stand-ins for apt, cmake, ninja,
# ctest and the program: what it calls, what it says, how it exits, and what it leaves alone.
#
# Usage: launcher_test.sh SOURCE_FOLDER [CASE ...]
set -uo pipefail

source_folder=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/stand_ins.sh"

# run ARGUMENTS...: the launcher; output in $work/out and $work/err, exit code in $status.
run() {
  env -u ATTNSCOPE_DEPS -u ATTNSCOPE_GUI -u ATTNSCOPE_BUILD_DIR -u CMAKE_PREFIX_PATH -u Torch_DIR \
    -u XDG_STATE_HOME HOME="$work/home" PATH="$work/bin:$PATH" ATTNSCOPE_JOBS=2 \
    ${EXTRA:+env $EXTRA} "$work/tree/attnscope" "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
}

check() { # check DESCRIPTION COMMAND...
  local what=$1
  shift
  if ! "$@"; then
    echo "FAILED in ${FUNCNAME[1]}: $what"
    sed 's/^/    /' "$work/err" "$work/calls" | tail -n 25
    failures=$((failures + 1))
  fi
}
status_is() { [ "$status" -eq "$1" ]; }
says() { grep -qF -- "$1" "$work/out" "$work/err"; }
called() { grep -qF -- "$1" "$work/calls"; }
not() { ! "$@"; }
count_is() { [ "$(grep -cF -- "$1" "$work/calls")" -eq "$2" ]; }

# ---- the cases -----------------------------------------------------------------------------------

first_start_builds_and_opens_the_app() {
  run
  check "exit code" status_is 0
  check "configures a release" called "cmake -S $work/tree --preset release"
  check "without CUDA where there is no GPU" called "-DATTNSCOPE_CUDA=OFF"
  check "builds the app without the command line" called "-j 2 attnscope_app"
  check "and nothing else" count_is linked 1
  check "with the desktop app where it can be" called "-DATTNSCOPE_GUI=AUTO"
  check "from the fetched sources" called \
    "-DATTNSCOPE_UI_SOURCES=$work/tree/build/deps/imgui-bundle"
  check "opens the app" says "desktop app"
  check "installs nothing" not called apt-get
  check "fetches nothing" not called "pip "
}

arguments_of_the_app_are_passed_on() {
  run gui --screenshot picture.png
  check "gui" says "program gui --screenshot picture.png"
  run --screenshot picture.png
  check "options alone" says "program --screenshot picture.png"
}

an_interrupted_run_says_so_itself() {
  local status_wanted
  for status_wanted in 130 143; do
    EXTRA=PROGRAM_STATUS=$status_wanted run run default
    check "exit code" status_is "$status_wanted"
    check "accuses nobody" not says "a bug of ours"
  done
}

run_default_keeps_table_and_report() {
  run run default
  check "exit code" status_is 0
  check "runs the default scenario" says "program run default --references both --report"
  check "says where the table is" says "$work/home/.local/state/attnscope/default.txt"
  check "keeps the table" grep -q program "$work/home/.local/state/attnscope/default.txt"
  run run default --steps 3
  check "with options it is the program's" grep -qx "program run default --steps 3" "$work/out"
}

without_a_home_results_lie_in_a_private_folder() {
  local table
  EXTRA="-u HOME TMPDIR=$work" run run default
  check "exit code" status_is 0
  table=$(sed -n 's/^  Table:  //p' "$work/err")
  check "keeps the table" grep -q program "$table"
  check "under a name that nobody foresees" test "${table#"$work"/attnscope-??????/}" = default.txt
  check "for this user alone" test "$(stat -c %a "$(dirname "$table")")" = 700
}

without_the_app_the_default_scenario_runs() {
  touch "$work/no-gui"
  run
  check "exit code" status_is 0
  check "says why" says "Without the desktop app: no GLFW: install libglfw3-dev"
  check "runs the default scenario" says "program run default --references both --report"
  run
  check "the second time too" says "program run default --references both --report"
  check "says so" says "this build has no desktop app"
}

second_start_only_runs() {
  run
  : >"$work/calls"
  run
  check "exit code" status_is 0
  check "runs" says "desktop app"
  check "calls no tool at all" test ! -s "$work/calls"
}

the_whole_program_opens_the_app_where_it_is_there() {
  run ops
  : >"$work/calls"
  run
  check "exit code" status_is 0
  check "runs" says "program gui"
  check "calls no tool at all" test ! -s "$work/calls"
  touch "$work/tree/app/main.cpp"
  run
  check "after an edit the app alone" called "-j 2 attnscope_app"
  check "and runs it" says "desktop app"
}

changed_source_is_built() {
  run
  : >"$work/calls"
  sleep 0.02
  touch "$work/tree/app/main.cpp"
  run ops
  check "builds" called linked
  check "does not configure again" not called cmake
  check "passes arguments on" says "program ops"
}

removed_source_is_noticed() {
  run
  : >"$work/calls"
  sleep 0.02
  rm "$work/tree/app/main.cpp"
  run ops
  check "asks ninja" called ninja
}

exit_code_of_the_program_is_kept() {
  EXTRA=PROGRAM_STATUS=1 run run default
  check "default scenario" status_is 1
  EXTRA=PROGRAM_STATUS=4 run
  check "the app" status_is 4
  EXTRA=PROGRAM_STATUS=3 run run missing.json
  check "other commands" status_is 3
}

a_failed_run_keeps_the_old_table() {
  run run default
  EXTRA=PROGRAM_STATUS=5 run run default
  check "exit code" status_is 5
  check "the old table" test -s "$work/home/.local/state/attnscope/default.txt"
  check "does not point to it" not says "Table:"
  EXTRA=PROGRAM_STATUS=139 run run default
  check "a crash is an internal error" status_is 5
  check "names the signal" says "signal 11"
}

missing_packages_are_installed() {
  printf 'libfmt-dev\nccache\n' >"$work/not-installed"
  run
  check "exit code" status_is 0
  check "installs just those" called "install -y --no-install-recommends ccache libfmt-dev"
  check "needs no update" not called "update"
}

package_lists_are_read_when_empty() {
  printf 'libfmt-dev\n' >"$work/not-installed"
  printf 'libfmt-dev\n' >"$work/no-candidate"
  run
  check "updates" called "update"
  check "names the package" says "no package libfmt-dev"
  check "exit code" status_is 4
}

without_root_one_command_is_printed() {
  printf 'libfmt-dev\n' >"$work/not-installed"
  echo 1000 >"$work/uid"
  run
  check "exit code" status_is 4
  check "the command" says "apt-get install -y --no-install-recommends libfmt-dev"
  check "nothing is called" test ! -s "$work/calls"
}

passwordless_sudo_is_used() {
  printf 'libfmt-dev\n' >"$work/not-installed"
  echo 1000 >"$work/uid"
  stand_in sudo <<'END'
#!/bin/sh
[ "$1" = -n ] && shift
exec "$@"
END
  run
  check "exit code" status_is 0
  check "installs" called "install -y"
}

no_package_of_libtorch() {
  printf 'libtorch-dev\nlibopenblas-dev\n' >"$work/not-installed"
  printf 'libtorch-dev\n' >"$work/no-candidate"
}

libtorch_is_fetched_where_there_is_no_package() {
  no_package_of_libtorch
  run
  check "exit code" status_is 0
  check "looks again first" called "update"
  check "says what, how much and why" says "PyTorch's libtorch (545 MB, once)"
  check "fetches three wheels" count_is "pip " 3
  check "pinned" called "pip torch==2.11.0 --hash=sha256:0f68f4ac"
  check "unpacks once, all of them" count_is "unpack " 1
  check "the libtorch among them" called " torch.whl"
  check "passed to CMake" called "prefix $work/tree/build/deps/libtorch/torch"
  check "installs nothing" not called "install -y"
  check "keeps no wheel" test ! -e "$work/tree/build/deps/wheels"
  : >"$work/calls"
  run
  check "a second start calls nothing" test ! -s "$work/calls"
  rm -rf "$work/tree/build/release"
  run ops
  check "builds again with it" called "prefix $work/tree/build/deps/libtorch/torch"
  check "without fetching again" not called "pip "
  rm "$work/tree/build/deps/libtorch/torch/lib/libtorch_cpu.so"
  run ops
  check "a damaged one is fetched again" count_is "pip " 3
}

other_packages_and_pip_are_installed_first() {
  no_package_of_libtorch
  echo libfmt-dev >>"$work/not-installed"
  touch "$work/no-pip"
  run
  check "exit code" status_is 0
  check "installs" called "install -y --no-install-recommends libfmt-dev python3-pip"
  check "then fetches" count_is "pip " 3
}

a_package_of_libtorch_is_preferred() {
  printf 'libtorch-dev\n' >"$work/not-installed"
  touch "$work/no-lists"
  run
  check "exit code" status_is 0
  check "reads the lists" called update
  check "installs it" called "install -y --no-install-recommends libtorch-dev"
  check "fetches nothing" not called "pip "
}

fetching_needs_no_root() {
  no_package_of_libtorch
  echo 1000 >"$work/uid"
  run
  check "exit code" status_is 0
  check "fetches" count_is "pip " 3
  check "no apt-get" not called apt-get
}

without_root_the_command_leaves_libtorch_out() {
  no_package_of_libtorch
  echo libfmt-dev >>"$work/not-installed"
  echo 1000 >"$work/uid"
  touch "$work/no-pip"
  run
  check "exit code" status_is 4
  check "the command" says "apt-get install -y --no-install-recommends libfmt-dev python3-pip'"
  check "fetches nothing yet" not called "pip "
  touch "$work/no-lists"
  run
  check "without lists all is asked of apt" says "libtorch-dev"
}

an_interrupted_fetch_goes_on() {
  no_package_of_libtorch
  echo "ERROR: connection lost" >"$work/pip-fails"
  run
  check "exit code" status_is 4
  check "the error" says "connection lost"
  check "what to do" says "CMAKE_PREFIX_PATH"
  check "complete wheels stay" test -e "$work/tree/build/deps/wheels/nvidia-cuda-cupti.whl"
  check "nothing is unpacked" not called "unpack "
  rm "$work/pip-fails"
  run
  check "the next start" status_is 0
  check "unpacks all" called "unpack nvidia-cuda-cupti.whl nvidia-cuda-runtime.whl torch.whl"
  touch "$work/unpack-fails"
  rm -rf "$work/tree/build/deps/libtorch" "$work/tree/build/release"
  no_package_of_libtorch
  run
  check "unpacking that fails" status_is 4
  rm "$work/unpack-fails"
  run
  check "heals" status_is 0
}

a_wrong_hash_is_an_error() {
  no_package_of_libtorch
  echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE." \
    >"$work/pip-fails"
  run
  check "exit code" status_is 4
  check "says so" says "not the file that was asked for"
  check "does not build" not called "cmake"
}

the_apps_sources_are_fetched() {
  rm -rf "$work/tree/build"
  make_sdist
  run
  local kept=$work/tree/build/deps/imgui-bundle
  check "exit code" status_is 0
  check "says what and how much" says "sources of Dear ImGui and ImPlot (54 MB, once)"
  check "pinned" called "pip imgui-bundle==1.93.0 --hash=sha256:10ad1dab"
  check "the library" test -e "$kept/imgui/imgui/imgui.cpp"
  check "its backend" test -e "$kept/imgui/imgui/backends/imgui_impl_glfw.cpp"
  check "its licence" test -e "$kept/imgui/imgui/LICENSE.txt"
  check "icons" test -e "$kept/hello_imgui/Font_Awesome_6_Free-Solid-900.otf"
  check "their licence" test -e "$kept/hello_imgui/LICENSE-FontAwesome.txt"
  check "nothing else" test "$(find "$kept" -type f | wc -l)" = 16
  check "as new files" test "$kept/imgui/imgui/imgui.h" -nt "$work/tree/CMakeLists.txt"
  check "keeps no archive" test "$(ls "$work/tree/build/deps")" = imgui-bundle
  check "installs nothing" not called apt-get
  : >"$work/calls"
  run
  check "a second start calls nothing" test ! -s "$work/calls"
  rm "$kept/implot/implot/implot.cpp"
  run
  check "a damaged one is fetched again" count_is "pip " 1
  sed -i 's/10ad1dab/20ad1dab/' "$work/tree/app/launcher/packages.sh"
  : >"$work/calls"
  run
  check "another version is fetched" called "pip imgui-bundle==1.93.0 --hash=sha256:20ad1dab"
}

without_the_app_nothing_is_fetched_for_it() {
  rm -rf "$work/tree/build"
  printf 'libglfw3-dev\nfonts-inter\n' >"$work/not-installed"
  EXTRA=ATTNSCOPE_GUI=OFF run ops
  check "exit code" status_is 0
  check "passed to CMake" called "-DATTNSCOPE_GUI=OFF"
  check "installs nothing" not called apt-get
  check "fetches nothing" not called "pip "
  mkdir "$work/deps"
  : >"$work/calls"
  EXTRA=ATTNSCOPE_DEPS=$work/deps run ops
  check "nor with a folder of libraries" not called "pip "
  check "whose sources CMake looks for" not called "-DATTNSCOPE_UI_SOURCES"
  EXTRA=ATTNSCOPE_GUI=maybe run ops
  check "unknown value" status_is 2
}

the_apps_packages_are_installed_with_pip() {
  rm -rf "$work/tree/build"
  make_sdist
  printf 'libglfw3-dev\nfonts-inter\n' >"$work/not-installed"
  touch "$work/no-pip"
  run
  check "exit code" status_is 0
  check "installs" called \
    "install -y --no-install-recommends libglfw3-dev fonts-inter python3-pip"
  check "then fetches" called "pip imgui-bundle"
}

without_packages_of_the_app_it_is_left_out() {
  rm -rf "$work/tree/build"
  printf 'libglfw3-dev\nlibegl-dev\nfonts-inter\n' >"$work/not-installed"
  printf 'libglfw3-dev\n' >"$work/no-candidate"
  touch "$work/no-pip" "$work/no-gui"
  run
  check "exit code" status_is 0
  check "says so" says "No package libglfw3-dev here: building without the desktop app."
  check "once" not says "Without the desktop app:"
  check "installs nothing for it" not called apt-get
  check "fetches nothing" not called "pip "
  check "runs the default scenario" says "program run default"
  EXTRA=ATTNSCOPE_GUI=ON run ops
  check "insisted on" status_is 4
  check "names the package" says "no package libglfw3-dev"
  check "and the way out" says "ATTNSCOPE_GUI=OFF"
}

a_font_that_is_no_package_is_left_out() {
  printf 'libglfw3-dev\nfonts-inter\n' >"$work/not-installed"
  printf 'fonts-inter\n' >"$work/no-candidate"
  run
  check "exit code" status_is 0
  check "says so" says "No package fonts-inter here"
  check "installs the others" called "install -y --no-install-recommends libglfw3-dev"
  check "not that one" not called "fonts-inter"
}

without_root_the_app_can_be_left_out() {
  printf 'libglfw3-dev\n' >"$work/not-installed"
  echo 1000 >"$work/uid"
  run
  check "exit code" status_is 4
  check "the command" says "apt-get install -y --no-install-recommends libglfw3-dev'"
  check "the way out" says "ATTNSCOPE_GUI=OFF ./attnscope"
  EXTRA=ATTNSCOPE_GUI=OFF run ops
  check "taken" status_is 0
}

a_failed_fetch_of_the_apps_sources_is_an_error() {
  rm -rf "$work/tree/build"
  make_sdist
  echo "ERROR: connection lost" >"$work/pip-fails"
  run
  check "exit code" status_is 4
  check "the error" says "connection lost"
  check "the way out" says "ATTNSCOPE_GUI=OFF ./attnscope"
  check "does not build" not called "cmake"
  echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE." \
    >"$work/pip-fails"
  run
  check "a wrong hash" status_is 4
  check "says so" says "not the file that was asked for"
  rm "$work/pip-fails"
  cp "$work/sdist.tar.gz" "$work/good.tar.gz"
  truncate -s 100 "$work/sdist.tar.gz"
  run
  check "a broken archive" status_is 4
  check "nothing half unpacked" test ! -e "$work/tree/build/deps/imgui-bundle"
  mv "$work/good.tar.gz" "$work/sdist.tar.gz"
  run
  check "heals" status_is 0
}

a_given_libtorch_is_used() {
  no_package_of_libtorch
  mkdir -p "$work/torch/share/cmake/Torch"
  touch "$work/torch/share/cmake/Torch/TorchConfig.cmake"
  EXTRA=CMAKE_PREFIX_PATH=$work/torch run
  check "exit code" status_is 0
  check "fetches nothing" not called "pip "
}

other_machines_are_told_what_to_do() {
  no_package_of_libtorch
  echo aarch64 >"$work/machine"
  run
  check "exit code" status_is 4
  check "names the variable" says CMAKE_PREFIX_PATH
  check "fetches nothing" not called "pip "
}

offline_folder_needs_no_apt() {
  printf 'libfmt-dev\n' >"$work/not-installed"
  mkdir "$work/deps"
  EXTRA=ATTNSCOPE_DEPS=$work/deps run
  check "exit code" status_is 0
  check "no apt" not called apt-get
  check "passed to CMake" called "-DATTNSCOPE_DEPS=$work/deps"
  EXTRA=ATTNSCOPE_DEPS=$work/nowhere run
  check "missing folder" status_is 4
}

changed_environment_configures_again() {
  run
  : >"$work/calls"
  EXTRA=CXX=other-compiler run ops
  check "configures" called "cmake -S"
}

cuda_is_accepted() {
  run --cuda ops
  check "exit code" status_is 0
  check "passed to CMake" called "-DATTNSCOPE_CUDA=ON"
}

a_gpu_turns_cuda_on() {
  stand_in nvidia-smi <<'END'
#!/bin/sh
echo "GPU 0: something"
seq 20000
END
  run ops
  check "passed to CMake, which looks for nvcc" called "-DATTNSCOPE_CUDA=AUTO"
}

compile_error_is_shown() {
  echo "app/main.cpp:1:2: error: nonsense" >"$work/ninja-fails"
  run
  check "exit code" status_is 5
  check "the error" says "error: nonsense"
  check "the log" says "$work/tree/build/logs/build-release.log"
  check "at most 30 lines" not says "line 20"
  check "no second try" count_is ninja 1
}

missing_dependency_is_shown() {
  echo "  attnscope: missing fmt: install libfmt-dev" >"$work/cmake-fails"
  run
  check "exit code" status_is 4
  check "the line" says "missing fmt: install libfmt-dev"
}

broken_build_folder_heals() {
  run
  echo garbage >"$work/tree/build/release/build.ninja"
  touch "$work/tree/app/main.cpp"
  run ops
  check "after a broken build.ninja" status_is 0
  rm -rf "${work:?}"/tree/build/release/*
  run ops
  check "after an emptied folder" status_is 0
  : >"$work/tree/build/release/app/attnscope"
  run ops
  check "after a truncated program" says "program ops"
  rm -rf "$work/tree/build"
  gui_fetched
  run ops
  check "after no folder at all" status_is 0
}

starts_at_once_build_once() {
  touch "$work/slow"
  local pids=()
  for _ in 1 2 3; do
    (
      HOME=$work/home PATH="$work/bin:$PATH" ATTNSCOPE_JOBS=2 "$work/tree/attnscope" ops \
        >/dev/null 2>&1 </dev/null
    ) &
    pids+=($!)
  done
  status=0
  for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
  check "all succeed" status_is 0
  check "one build" count_is linked 1
  check "one configuration" count_is "cmake -S" 1
}

tests_get_what_they_need() {
  printf 'python3-numpy\npatch\nclang-16\n' >"$work/not-installed"
  run ops
  check "the program alone does not" not called apt-get
  run test --level quick
  check "exit code" status_is 0
  check "installed" called "install -y --no-install-recommends patch python3-numpy"
  check "not what nightly needs" not called clang-16
  : >"$work/calls"
  run test --level quick
  check "once" not called apt-get
  echo clang-16 >"$work/not-installed"
  run test --level nightly --part tidy
  check "nightly installs more" called "install -y --no-install-recommends clang-16"
  echo python3-numpy >"$work/not-installed"
  touch "$work/apt-fails"
  run test --level quick
  check "nowhere to be had" status_is 4
  check "says so" says "apt-get install failed"
  echo 1000 >"$work/uid"
  run test --level quick
  check "not by this user" status_is 4
  check "the command" says "install -y --no-install-recommends python3-numpy'"
  EXTRA=ATTNSCOPE_PYTHON=/somewhere/python3 run test --level quick
  check "a Python of the user's" status_is 0
}

tests_go_through_ctest() {
  run test --level quick
  check "exit code" status_is 0
  check "the program's own build" called "--preset release"
  check "with tests" called "-DATTNSCOPE_TESTS=ON"
  check "everything" called "-j 2 all"
  check "label" called "-L ^quick$"
  check "no test is an error" called "--no-tests=error"
  run test
  check "the default level" called "-L ^(quick|default)$"
  check "says so" says "all tests of level default passed"
  check "of warnings nothing" not says "are no errors"
  touch "$work/other-compiler"
  rm -rf "$work/tree/build/release"
  run test
  check "a compiler that was not tried" says "warnings of GNU 99.1 are no errors"
  EXTRA=CTEST_STATUS=8 run test
  check "failed tests" status_is 1
  check "are not called passed" not says "passed"
}

tests_and_program_share_a_build() {
  run ops
  check "no tests for the program" called "-DATTNSCOPE_TESTS=OFF"
  : >"$work/calls"
  run test --level quick
  check "adds them" called "-DATTNSCOPE_TESTS=ON"
  check "links nothing again" not called linked
  : >"$work/calls"
  run ops
  check "the program is still fresh" test ! -s "$work/calls"
}

tests_say_where_the_time_went() {
  run test
  check "the build" says " s  build"
  check "suites together" says "15.0 s  test_app"
  check "scripts too" says "1.2 s  repo.*"
  check "the slowest test" says "11.9 s  Capture.Slow/1"
  check "what was skipped" says "2 tests in the programs, 1 skipped: Capture.Quick"
  EXTRA=CTEST_STATUS=8 run test
  check "after failures too" says "11.9 s  Capture.Slow/1"
}

without_the_app_tests_fail_or_say_so() {
  touch "$work/no-gui"
  run test
  check "an incomplete level fails" status_is 4
  check "says why" says "no GLFW: install libglfw3-dev"
  check "and the way out" says "ATTNSCOPE_GUI=OFF ./attnscope test"
  EXTRA=ATTNSCOPE_GUI=OFF run test
  check "left out on purpose" status_is 0
  check "is said" says "tests of the desktop app and the random walk are left out"
}

nightly_runs_its_parts() {
  run test --level nightly
  check "exit code" status_is 0
  check "one clang build for two parts" called "--preset address"
  check "the long walk" called "(test_kernels|test_engine|test_reference|test_parsers|test_hostile"
  check "fuzzers a minute each" called "fuzz $work/tree/build/address 60"
  check "threads" called "--preset thread"
  check "clang-tidy" called "tidy $work/tree $work/tree/build/tidy 1/1 2"
  check "soak" called "-L ^soak$"
  check "a tree with bugs" called "stack whole $work/tree $work/tree/build/bugs-source"
  check "which is built" called "--preset bugs -B $work/tree/build/bugs"
  check "from there" called "cmake -S $work/tree/build/bugs-source"
  check "and run" called "table $work/tree $work/tree/build/bugs/app/attnscope 2"
  check "headers" called "-L ^headers$"
  check "not the default level" not called "quick|default"
  : >"$work/calls"
  run test --part tidy:2/5
  check "a share of one part" called "tidy $work/tree $work/tree/build/tidy 2/5 2"
  check "that part alone" not called ctest
}

nightly_fails_with_a_part() {
  echo "ERROR: AddressSanitizer: heap-buffer-overflow" >"$work/fuzz-finds"
  run test --level nightly --part fuzz
  check "a finding" status_is 1
  check "is shown" says "heap-buffer-overflow"
  echo "warning: planted" >"$work/tidy-finds"
  run test --level nightly
  check "both" says "failed parts: fuzz tidy"
  check "the others ran" called "-L ^headers$"
  check "exit code" status_is 1
}

nightly_fails_with_a_missed_bug() {
  echo "MISSED  other_bug" >"$work/bug-missed"
  run test --level nightly --part bugs
  check "a missed bug" status_is 1
  check "is named" says "MISSED  other_bug"
  check "one that was caught is not" not says "caught  one_bug"
  echo "one_bug.patch no longer applies" >"$work/stack-fails"
  run test --level nightly --part bugs
  check "an old patch" status_is 1
  check "is named too" says "one_bug.patch no longer applies"
}

# bench_stand_in NAME STATUS
bench_stand_in() {
  stand_in "$1" <<END
#!/bin/sh
echo "$1 \$*"
exit $2
END
  mkdir -p "$work/tree/build/release/tests"
  mv "$work/bin/$1" "$work/tree/build/release/tests/"
}

benchmarks_are_built_on_demand() {
  run ops
  check "not by a plain start" not called bench_
  bench_stand_in bench_engine 0
  bench_stand_in bench_ui 2
  : >"$work/calls"
  run bench flash
  check "exit code" status_is 0
  check "configures them" called "-DATTNSCOPE_TESTS=ON"
  check "in the release folder" called "--preset release"
  check "builds them alone" called "-j 2 bench_engine"
  check "and those of frames" called "-j 2 bench_ui"
  check "runs those that match" says "bench_engine --benchmark_filter=flash"
  check "in both" says "bench_ui --benchmark_filter=flash"
  check "keeps the program" test -x "$work/tree/build/release/app/attnscope"
  : >"$work/calls"
  run ops
  check "the program is still fresh" test ! -s "$work/calls"
  run bench scale --json
  check "what the program measures itself" says "program bench scale --json"
  check "without them" not says "bench_engine"
  echo "ATTNSCOPE_TESTS:BOOL=ON" >>"$work/tree/build/release/CMakeCache.txt"
  run bench
  check "does not configure twice" not called "cmake -S"
}

a_benchmark_of_either_program_will_do() {
  run
  bench_stand_in bench_engine 2
  bench_stand_in bench_ui 0
  run bench pool_map
  check "of frames alone" status_is 0
  bench_stand_in bench_ui 2
  run bench nothing
  check "of neither" status_is 2
  bench_stand_in bench_engine 0
  bench_stand_in bench_ui 5
  run bench
  check "frames that fail" status_is 5
  bench_stand_in bench_engine 5
  run bench
  check "steps that fail" status_is 5
  check "end it" not says "bench_ui"
}

without_the_app_no_frame_is_measured() {
  touch "$work/no-gui"
  run
  bench_stand_in bench_engine 0
  run bench
  check "exit code" status_is 0
  check "says so" says "no desktop app, so its frames are not measured"
  check "builds nothing for it" not called bench_ui
}

usage_errors() {
  run test --level best
  check "unknown level" status_is 2
  check "allowed values" says "quick, default, nightly"
  run test --levle quick
  check "unknown argument" status_is 2
  run test --level
  check "no level" status_is 2
  run test --part best
  check "unknown part" status_is 2
  check "allowed parts" says "address, fuzz, thread, tidy, soak, bugs, headers, tidy:2/4"
  run test --level quick --part tidy
  check "a part of another level" status_is 2
  EXTRA=ATTNSCOPE_JOBS=many run
  check "jobs" status_is 2
}

help_needs_no_build() {
  run --help
  check "exit code" status_is 0
  check "own commands" says "./attnscope test"
  check "nothing is called" test ! -s "$work/calls"
  run ops
  run --help
  check "the program's commands" says "program --help"
}

standard_output_is_the_programs_alone() {
  run ops --json
  check "only the program writes to it" test "$(cat "$work/out")" = "program ops --json"
}

helpers='stand_in|fresh_world|run|check|status_is|says|called|not|count_is|no_package_of_libtorch'
helpers="$helpers|gui_fetched|make_sdist|bench_stand_in"
cases=${*:-$(declare -F | awk '{print $3}' | grep -vxE "$helpers")}
for case in $cases; do
  fresh_world
  "$case"
done
if [ "$failures" -gt 0 ]; then
  echo "$failures failed"
  exit 1
fi
echo "ok: $(wc -w <<<"$cases") cases"
