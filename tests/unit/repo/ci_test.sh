#!/usr/bin/env bash
# Tests of .ci/run on a copy of it beside a stand-in for ./attnscope: which parts it begins, what it
# says of those that fail or do not end in time, how it exits.
#
# Usage: ci_test.sh SOURCE_FOLDER
set -uo pipefail
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
failures=0

mkdir "$work/.ci" && cp "$1/.ci/run" "$work/.ci/run" || exit 2
# Its parts end at once, but BRIEF after 7 s and SLOW after 30 s; the part WRONG fails.
cat >"$work/attnscope" <<'STAND_IN'
#!/usr/bin/env bash
part=${5:-default}
echo "$part" >>calls
[ "$part" != "${SLOW:-}" ] || sleep 30
[ "$part" != "${BRIEF:-}" ] || sleep 7
[ "$part" != "${WRONG:-}" ]
STAND_IN
chmod +x "$work/attnscope"
cd "$work" && git init -q . || exit 2

# commits N: the repository has N of them.
commits() {
  local i
  git update-ref -d HEAD
  for ((i = 0; i < $1; ++i)); do
    git -c user.name=t -c user.email=t@localhost commit -q --allow-empty -m "$i"
  done
}
run() { # VARIABLE=VALUE...: .ci/run; its output in out, the parts in calls, exit code in $status
  : >calls
  env -u ATTNSCOPE_CI_MINUTES -u ATTNSCOPE_CI_LIMIT "$@" .ci/run >out 2>err
  status=$?
}
check() { # DESCRIPTION COMMAND...
  local what=$1
  shift
  if ! "$@"; then
    echo "FAILED: $what (exit code $status)"
    sed 's/^/    /' calls out err
    failures=$((failures + 1))
  fi
}
calls_are() { [ "$(tr '\n' ' ' <calls)" = "$1 " ]; }
says() { grep -qE -- "$1" out; }
status_is() { [ "$status" -eq "$1" ]; }

commits 0
run
all=$(tail -n +2 calls)
mapfile -t parts <<<"$all"
check 'all ran' status_is 0
check 'nothing is left' says '^CI left to the next pushes: nothing$'
check 'every part once' [ "$(sort -u <<<"$all")" = "$(sort <<<"$all")" ]
for part in address fuzz thread soak bugs headers; do
  check "$part is a part" grep -qx "$part" calls
done
# Shares of tidy, where there are any, are whole.
mapfile -t shares < <(grep '^tidy:' calls | sort)
for i in "${!shares[@]}"; do
  check "share $((i + 1)) of tidy" [ "${shares[i]}" = "tidy:$((i + 1))/${#shares[@]}" ]
done

commits 3
run
check 'begins behind what earlier pushes began with' [ "$(sed -n 2p calls)" = "${parts[3]}" ]

# The stand-in's first part ends after the time to begin others.
commits 0
run BRIEF="${parts[0]}" ATTNSCOPE_CI_MINUTES=0.1
check 'begins no part late' calls_are "default ${parts[0]}"
check 'that is no failure' status_is 0
check 'says what ran' says "^CI ran: default ${parts[0]} "
check 'says what is left' says "^CI left to the next pushes: ${parts[*]:1}\$"

run SLOW="${parts[1]}" ATTNSCOPE_CI_LIMIT=0.1
check 'a part out of time is no failure' status_is 0
check 'no part follows it' calls_are "default ${parts[*]:0:2}"
check 'says that it was stopped' says "^CI stopped ${parts[1]} after 0 minutes"
check 'and is left' says "^CI left to the next pushes: ${parts[*]:1}\$"
check 'what ran before it has run' says "^CI ran: default ${parts[0]} "

run WRONG="${parts[2]}"
check 'a part that fails is a failure' status_is 1
check 'the others run' says '^CI left to the next pushes: nothing$'

run WRONG=default
check 'without the default level nothing else runs' calls_are default
check 'and that is a failure' status_is 1

[ "$failures" -eq 0 ] && echo "ci_test.sh: all checks hold"
[ "$failures" -eq 0 ]
