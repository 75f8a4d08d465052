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

# ---- the stand-ins -------------------------------------------------------------------------------

stand_in() {
  cat >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# A new folder with the launcher, sources and stand-ins; everything installed, user root.
fresh_world() {
  rm -rf "${work:?}"/*
  mkdir -p "$work/tree/app" "$work/tree/engine" "$work/tree/kernels" "$work/tree/reference" \
    "$work/tree/tests" "$work/bin" "$work/home"
  cp "$source_folder/attnscope" "$work/tree/"
  touch "$work/tree/CMakeLists.txt" "$work/tree/CMakePresets.json" "$work/tree/app/main.cpp"
  : >"$work/calls"
  : >"$work/not-installed"
  echo 0 >"$work/uid"
  stand_in id <<END
#!/bin/sh
cat "$work/uid"
END
  stand_in sudo <<END
#!/bin/sh
exit 1
END
  stand_in nvidia-smi <<END
#!/bin/sh
exit 9
END
  stand_in dpkg-query <<END
#!/bin/bash
for name in "\${@:4}"; do
  grep -qx -- "\$name" "$work/not-installed" || echo "installed \$name"
done
END
  stand_in apt-cache <<END
#!/bin/sh
if [ -e "$work/no-candidate" ] && grep -qx "\$2" "$work/no-candidate"; then exit 0; fi
echo "  Candidate: 1.0"
seq 20000
END
  stand_in apt-get <<END
#!/bin/sh
echo "apt-get \$*" >>"$work/calls"
case "\$*" in *install*) : >"$work/not-installed" ;; esac
END
  stand_in cmake <<END
#!/bin/bash
echo "cmake \$*" >>"$work/calls"
if [ -e "$work/cmake-fails" ]; then cat "$work/cmake-fails"; exit 1; fi
while [ "\$1" != -B ]; do shift; done
mkdir -p "\$2"; echo ok >"\$2/build.ninja"
END
  # Links the program if it is missing or older than the source, as the real one would.
  stand_in ninja <<END
#!/bin/bash
echo "ninja \$*" >>"$work/calls"
echo building >>"$work/log-of-builds"
while [ "\$1" != -C ]; do shift; done
folder=\$2
if [ "\$(cat "\$folder/build.ninja")" != ok ]; then echo "ninja: error: build.ninja"; exit 1; fi
if [ -e "$work/ninja-fails" ]; then
  for i in \$(seq 50); do echo "line \$i"; done
  cat "$work/ninja-fails"
  exit 1
fi
[ -e "$work/slow" ] && sleep 1
program=\$folder/app/attnscope
mkdir -p "\$folder/app"
if [ ! -e "\$program" ] || [ "$work/tree/app/main.cpp" -nt "\$program" ]; then
  echo "linked" >>"$work/calls"
  printf '#!/bin/sh\necho "program \$*"\nexit \${PROGRAM_STATUS:-0}\n' >"\$program.new"
  chmod +x "\$program.new"
  mv "\$program.new" "\$program"
fi
END
  stand_in ctest <<END
#!/bin/sh
echo "ctest \$*" >>"$work/calls"
exit \${CTEST_STATUS:-0}
END
}

# run ARGUMENTS...: the launcher; output in $work/out and $work/err, exit code in $status.
run() {
  env -u ATTNSCOPE_DEPS -u ATTNSCOPE_BUILD_DIR -u CMAKE_PREFIX_PATH -u Torch_DIR \
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

first_start_builds_and_runs_default() {
  run
  check "exit code" status_is 0
  check "configures a release" called "cmake -S $work/tree --preset release"
  check "without CUDA where there is no GPU" called "-DATTNSCOPE_CUDA=OFF"
  check "builds the program" called "-j 2 attnscope"
  check "runs the default scenario" says "program run default --references both --report"
  check "says where the table is" says "$work/home/.local/state/attnscope/default.txt"
  check "keeps the table" grep -q program "$work/home/.local/state/attnscope/default.txt"
  check "installs nothing" not called apt-get
}

second_start_only_runs() {
  run
  : >"$work/calls"
  run
  check "exit code" status_is 0
  check "runs" says "program run default"
  check "calls no tool at all" test ! -s "$work/calls"
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
  EXTRA=PROGRAM_STATUS=1 run
  check "default scenario" status_is 1
  EXTRA=PROGRAM_STATUS=3 run run missing.json
  check "other commands" status_is 3
}

a_failed_run_keeps_the_old_table() {
  run
  EXTRA=PROGRAM_STATUS=5 run
  check "exit code" status_is 5
  check "the old table" test -s "$work/home/.local/state/attnscope/default.txt"
  check "does not point to it" not says "Table:"
  EXTRA=PROGRAM_STATUS=139 run
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

no_libtorch_tells_what_to_do() {
  printf 'libtorch-dev\n' >"$work/not-installed"
  printf 'libtorch-dev\n' >"$work/no-candidate"
  run
  check "exit code" status_is 4
  check "names the variable" says CMAKE_PREFIX_PATH
  mkdir -p "$work/torch/share/cmake/Torch"
  touch "$work/torch/share/cmake/Torch/TorchConfig.cmake"
  EXTRA=CMAKE_PREFIX_PATH=$work/torch run
  check "a given libtorch will do" status_is 0
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
  check "said in one line" says "CUDA code is asked for"
}

a_gpu_turns_cuda_on() {
  stand_in nvidia-smi <<'END'
#!/bin/sh
echo "GPU 0: something"
seq 20000
END
  run ops
  check "passed to CMake" called "-DATTNSCOPE_CUDA=ON"
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

tests_go_through_ctest() {
  run test --level quick
  check "exit code" status_is 0
  check "preset" called "--preset ci"
  check "everything" called "-j 2 all"
  check "label" called "-L ^quick$"
  run test
  check "full by default" called "-L ^(quick|full)$"
  run test --level=soak
  check "soak runs all" called "-L . "
  check "no test is an error" called "--no-tests=error"
  EXTRA=CTEST_STATUS=8 run test --level quick
  check "failed tests" status_is 1
}

usage_errors() {
  run test --level best
  check "unknown level" status_is 2
  check "allowed values" says "quick, full, soak"
  run test --levle quick
  check "unknown argument" status_is 2
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

helpers='stand_in|fresh_world|run|check|status_is|says|called|not|count_is'
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
