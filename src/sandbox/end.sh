# Ends every process of this user but those that this one comes from.
if [ ! -r /proc/self/stat ]; then
  # A Mac: what was started for us carries a mark.
  ps -xwwE -o pid=,command= | while read -r pid rest; do
    case "$rest" in *RALPH_MARK=*) [ "$pid" = "$$" ] || kill -9 "$pid" 2>/dev/null ;; esac
  done
  exit 0
fi
# The state and the parent of a process; its name, in parentheses, may hold anything.
look() {
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  rest=${stat##*) }
  state=${rest%% *}
  rest=${rest#* }
  parent=${rest%% *}
}
kept=" 1 $$ "
pid=$$
while look "$pid" && [ "$parent" -gt 1 ]; do
  pid=$parent
  kept="$kept$pid "
done
rounds=0
while [ "$rounds" -lt 100 ]; do
  killed=no
  for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}
    case "$kept" in *" $pid "*) continue ;; esac
    look "$pid" || continue
    case "$state" in Z | X) continue ;; esac
    kill -9 "$pid" 2>/dev/null && killed=yes
  done
  [ "$killed" = no ] && exit 0
  # What was killed takes a moment to go.
  rounds=$((rounds + 1))
  sleep 0.05
done
exit 1
