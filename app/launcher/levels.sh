# shellcheck shell=bash disable=SC2034,SC2154 # variables of ./attnscope, which reads this file
#
# ./attnscope test: what each level builds and runs, and where its time went. say, fail, step,
# ensure and show_failure are ./attnscope's.

# Parts of level nightly, in this order; tidy takes a share of the sources, as in tidy:2/4.
NIGHTLY_PARTS='address fuzz thread tidy soak bugs headers'

# Programs whose tests run under the sanitizers; of the desktop app the random walk is added.
ADDRESS_TESTS='test_kernels test_engine test_reference test_parsers test_hostile test_property'
THREAD_TESTS='test_kernels test_engine test_walk'

test_usage() {
  cat <<END
Usage: ./attnscope test [--level LEVEL] [--part PART]

  --level quick     unit tests and checks of the tree
  --level default   everything that a change can break: unit, property, golden and UI tests, kept
                    inputs of parsers, damaged files, a random walk, format, checks of the tree
  --level nightly   ${NIGHTLY_PARTS// /, }
  --part PART       of nightly this part alone; tidy:2/4 is the second quarter of its sources
END
}

run_tests() {
  local level=default part='' usage='Allowed: --level quick|default|nightly, --part PART'
  while [ $# -gt 0 ]; do
    case $1 in
      --level | --part)
        [ $# -gt 1 ] || fail 2 "test: $1 needs a value." "$usage"
        if [ "$1" = --level ]; then level=$2; else part=$2; fi
        shift
        ;;
      --level=*) level=${1#--level=} ;;
      --part=*) part=${1#--part=} ;;
      --help | -h)
        test_usage
        return 0
        ;;
      *) fail 2 "test: unknown argument '$1'." "$usage" ;;
    esac
    shift
  done
  case $level in
    quick | default | nightly) ;;
    *) fail 2 "test: unknown level '$level'." "Allowed: quick, default, nightly" ;;
  esac
  if [ -n "$part" ]; then
    [ "$level" = nightly ] || [ "$level" = default ] || fail 2 "test: --part goes with nightly."
    level=nightly
    case $part in
      tidy:[1-9]*/[1-9]*) ;;
      *) grep -qw -- "$part" <<<"$NIGHTLY_PARTS" && [[ $part != *' '* ]] ||
        fail 2 "test: unknown part '$part'." "Allowed: ${NIGHTLY_PARTS// /, }, tidy:2/4" ;;
    esac
  fi
  # As many tests at once as there are cores: threads of one would only wait for those of another.
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
  # The program says which instructions OpenBLAS uses, as on a machine where nobody has.
  unset OPENBLAS_CORETYPE
  started_tests=$SECONDS spent=''
  rm -rf "$logs"/tests*.log "$build"/*/tests/times
  if [ "$level" = nightly ]; then
    run_nightly "${part:-$NIGHTLY_PARTS}"
  else
    run_level "$level"
  fi
  local status=$?
  report_times
  if [ "$status" -eq 0 ]; then
    say "attnscope: all tests of level $level passed${part:+ (part $part)}. Logs: $logs"
  fi
  return "$status"
}

# timed NAME COMMAND...: keeps its seconds for the report.
timed() {
  local name=$1 start=$SECONDS status
  shift
  "$@"
  status=$?
  spent+="$((SECONDS - start)) $name"$'\n'
  return "$status"
}

# ---- quick and default ---------------------------------------------------------------------------

run_level() {
  local labels='^quick$'
  if [ "$1" = default ]; then labels='^(quick|default)$'; fi
  needs_tests=yes
  timed "build" ensure release all
  sed -n 's/^-- Warnings are errors: OFF (\(.*\))$/attnscope: warnings of \1 are no errors/p' \
    "$logs/configure-release.log" >&2
  need_gui
  run_ctest release "$1" -L "$labels"
}

# The tests of the desktop app are part of every level, unless it is left out on purpose.
need_gui() {
  built_with_gui release && return 0
  if [ "$gui" != OFF ]; then
    fail 4 "this build has no desktop app, so its tests and the random walk cannot run." \
      "$(sed -n 's/^-- GUI: no (\(.*\))$/\1/p' "$logs/configure-release.log")" \
      "Or leave them out: ATTNSCOPE_GUI=OFF ./attnscope test"
  fi
  say "attnscope: ATTNSCOPE_GUI is OFF: tests of the desktop app and the random walk are left out"
}

# run_ctest PRESET NAME OPTION...: the tests that the options choose.
run_ctest() {
  local preset=$1 name=$2 log=$logs/tests-$2.log
  shift 2
  mkdir -p "$build/$preset/tests/times"
  timed "tests" ctest --test-dir "$build/$preset" "$@" -j "$jobs" --output-on-failure \
    --no-tests=error --output-log "$log"
  local status=$?
  [ "$status" -ne 0 ] || return 0
  say "attnscope: tests failed ($name). Full log: $log"
  say "  Only those again: ctest --test-dir $build/$preset --rerun-failed --output-on-failure"
  return 1
}

# ---- nightly -------------------------------------------------------------------------------------

run_nightly() { # PARTS
  local part failed='' start
  needs_tests=yes needs_clang=yes
  for part in $1; do
    start=$SECONDS
    say "attnscope: nightly, part $part"
    "part_${part%%:*}" "${part#*:}" || failed+=" $part"
    say "attnscope: nightly, part $part took $((SECONDS - start)) s"
  done
  [ -z "$failed" ] || say "attnscope: failed parts:$failed"
  [ -z "$failed" ]
}

# tests_of PROGRAM...: a regular expression for the entries of these programs.
tests_of() { printf '^(%s)\\.' "$(tr ' ' '|' <<<"$*")"; }

# The address and undefined-behaviour sanitizers: parsers, unit and property tests, the long walk.
part_address() {
  local targets=$ADDRESS_TESTS
  if [ "$gui" != OFF ]; then targets+=' test_walk'; fi
  timed "build (address)" ensure address "$targets"
  # What OpenBLAS and the drivers keep until the end is none of ours.
  export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  # shellcheck disable=SC2086
  ATTNSCOPE_WALK_ACTIONS=${ATTNSCOPE_WALK_ACTIONS:-20000} \
    run_ctest address address -R "$(tests_of $targets)"
}

# Every parser under libFuzzer for a minute, from its kept inputs.
part_fuzz() {
  local log=$logs/fuzz.log
  timed "build (address)" ensure address fuzz_parsers
  if ! timed "fuzzing" step "Fuzzing" "$log" "$root/tests/fuzz/run.sh" "$build/address" 60; then
    tail -n 60 "$log" >&2
    say "attnscope: a fuzzer found something. Full log: $log"
    return 1
  fi
  grep ' ok, ' "$log" >&2
}

part_thread() {
  local targets=$THREAD_TESTS
  if [ "$gui" = OFF ]; then targets=${targets/ test_walk/}; fi
  timed "build (thread)" ensure thread "$targets"
  # The graphics driver's threads are not instrumented.
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}
  # shellcheck disable=SC2086
  run_ctest thread thread -R "$(tests_of $targets)"
}

# part_tidy [I/N]: clang-tidy on every source, or on the I-th of N equal shares.
part_tidy() {
  local share=${1#tidy} log=$logs/tidy.log
  timed "configure (tidy)" ensure tidy ""
  if ! timed "clang-tidy" step "clang-tidy ${share:-1/1}" "$log" \
    "$root/tests/unit/repo/tidy.sh" "$root" "$build/tidy" "${share:-1/1}" "$jobs"; then
    tail -n 60 "$log" >&2
    say "attnscope: clang-tidy found something. Full log: $log"
    return 1
  fi
  tail -n 1 "$log" >&2
}

# What takes minutes: real geometry, all pairs of planted bugs.
part_soak() {
  timed "build" ensure release all
  run_ctest release soak -L '^soak$'
}

# The program with every planted bug in, one after the other: the table of tests/bugs.
part_bugs() {
  local log=$logs/bugs.log copy=$build/bugs-source
  mkdir -p "$logs"
  if ! timed "planting" "$root/tests/bugs/stack.sh" whole "$root" "$copy" 2>"$log"; then
    tail -n 60 "$log" >&2
    return 1
  fi
  timed "build (bugs)" ensure bugs attnscope
  if ! timed "table of bugs" step "Running with each bug" "$log" "$root/tests/bugs/table.sh" \
    "$root" "$build/bugs/app/attnscope" "$jobs"; then
    grep -vE '^caught ' "$log" >&2
    say "attnscope: bugs were missed. Full log: $log"
    return 1
  fi
  tail -n 1 "$log" >&2
}

# Every public header compiles by itself.
part_headers() {
  timed "build" ensure release all
  run_ctest release headers -L '^headers$'
}

# ---- where the time went -------------------------------------------------------------------------

report_times() {
  local log=("$logs"/tests-*.log) times=("$build"/*/tests/times/*.json)
  say ""
  say "Where the time went: $((SECONDS - started_tests)) s"
  awk 'NF { seconds = $1; $1 = ""; total[$0] += seconds; if (!($0 in order)) order[$0] = ++n
      name[order[$0]] = $0 }
    END { for (i = 1; i <= n; ++i) printf "  %6d s %s\n", total[name[i]], name[i] }' \
    <<<"$spent" >&2
  [ -e "${log[0]}" ] || return 0
  say "Suites, seconds of one core:"
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec$/\1 \2/p' "${log[@]}" |
    sed -E 's/^(test_[a-z]+)\.[0-9]+ /\1 /; s/^(repo|bugs)\.[a-z_0-9]+ /\1.* /' |
    awk '{ sum[$1] += $2 } END { for (s in sum) printf "  %8.1f s  %s\n", sum[s], s }' |
    sort -rn >&2
  say "The ten slowest tests:"
  {
    sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec$/\2 \1/p' "${log[@]}" |
      grep -v ' test_'
    [ ! -e "${times[0]}" ] || test_lines "${times[@]}" | awk '{ print $1, $2 }'
  } | sort -rn | head -n 10 | awk '{ printf "  %8.1f s  %s\n", $1, $2 }' >&2
  [ -e "${times[0]}" ] || return 0
  test_lines "${times[@]}" | awk '{ ++all } $3 == "SKIPPED" { ++skipped; names = names " " $2 }
    END { printf "%d tests in the programs, %d skipped%s\n", all, skipped,
      skipped ? ":" names : "" }' >&2
}

# test_lines FILE...: seconds, name and result of every test in GoogleTest's JSON.
test_lines() {
  awk -F'"' '/^ *"name": / { name = $4 } /^ *"result": / { result = $4 }
    /^ *"time": / { time = $4; sub(/s$/, "", time) }
    /^ *"classname": / { name = $4 "." name; gsub(/\\\//, "/", name); print time, name, result }' \
    "$@"
}
