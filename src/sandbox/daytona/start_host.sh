# Starts the dashboard from the directory $1 on port $2, in place of the one that runs. The other arguments are variables.
cd "$1" || exit
port=$2
shift 2
chmod 700 ralph.new && ./ralph.new --version || exit 3
# Whether the process in `pid` is the dashboard. After a restart of the sandbox that number may be another program's.
is_running() {
  [ "$(readlink "/proc/$(cat pid)/exe")" = "$(pwd -P)/ralph" ]
}
if [ -e pid ] && is_running; then
  kill "$(cat pid)"
  for _ in $(seq 100); do
    is_running || break
    sleep 0.2
  done
  is_running && kill -9 "$(cat pid)"
fi
mv ralph.new ralph
# The API key, if the host has one.
set -a
. ./environment
set +a
env RALPH_HOME="$PWD/home" XDG_CONFIG_HOME="$PWD/config" "$@" setsid ./ralph dashboard --no-open --listen "0.0.0.0:$port" >log 2>&1 </dev/null &
echo $! >pid
for _ in $(seq 100); do
  grep -q 'Serving the API' log && exit
  kill -0 "$(cat pid)" 2>/dev/null || break
  sleep 0.2
done
cat log
exit 1
