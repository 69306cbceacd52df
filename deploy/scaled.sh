#!/usr/bin/env bash
# `make scaled`: two web processes, two workers and nginx on this machine. PostgreSQL
# and Redis are those of DATABASE_URL and REDIS_URL, also in `.env`, or else are started
# here (not Redis if REDIS_URL is set and empty: PostgreSQL is used alone), over
# folders below PARLEY_DATA (for root, PostgreSQL's is in the home of its user), and end
# with the rest. A web process or a worker may be killed, to see the others go on. Ctrl-C drains
# and ends all, twice at once.
set -euo pipefail
set -m  # each in a group of its own: Ctrl-C is for us, and we end them in order
cd "$(dirname "$0")/.."

data=${PARLEY_DATA:-$PWD/data}/scaled
port=${PORT:-8000}
mkdir -p "$data/nginx"
chmod 700 "$data"
declare -A running  # names by process id

say() { echo "scaled: $*" >&2; }
need() { command -v "$1" || { say "$1 is not installed; install it${2:+, or $2}"; exit 1; }; }

# Ends those whose names match, all at once.
end() {
  local pid ending=()
  for pid in "${!running[@]}"; do
    if [[ ${running[$pid]} == $1 ]]; then ending+=("$pid"); fi
  done
  for pid in "${ending[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${ending[@]}"; do wait "$pid" 2>/dev/null || true; done
}

finish() {
  trap - EXIT
  trap 'kill -KILL "${!running[@]}" 2>/dev/null || true' INT TERM
  # Workers first, so that their turns are over or handed over before what they need
  # goes, be it the demo provider.
  end "worker*"
  end "[!R]*"
  end Redis
  if [ -n "${cluster:-}" ]; then as_owner "$pg_ctl" -D "$cluster" -m fast -s stop || true; fi
  if [ -n "${socket:-}" ]; then as_owner rm -rf "$socket"; fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# PostgreSQL refuses to run as root, and its user may not enter our folder.
as_owner() {
  if [ "$(id -u)" -eq 0 ]; then (cd / && exec runuser -u postgres -- "$@"); else "$@"; fi
}

start_postgres() {
  local bin pgport
  bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1 || true)
  initdb=$( [ -x "$bin/initdb" ] && echo "$bin/initdb" || need initdb "set DATABASE_URL")
  pg_ctl=$( [ -x "$bin/pg_ctl" ] && echo "$bin/pg_ctl" || need pg_ctl "set DATABASE_URL")
  pgport=${PGPORT:-15432}
  folder=$data/postgres
  if [ "$(id -u)" -eq 0 ]; then folder=$(getent passwd postgres | cut -d: -f6)/parley-scaled; fi
  as_owner mkdir -p -m 700 "$folder"
  # Everybody who reaches it is its superuser: that is whoever may enter this folder.
  socket=$(as_owner mktemp -d)
  if ! as_owner test -e "$folder/data/PG_VERSION"; then
    as_owner "$initdb" -D "$folder/data" -U parley -A trust -E UTF8 >/dev/null
  fi
  as_owner "$pg_ctl" -D "$folder/data" -s -w -l "$folder/log" \
    -o "-p $pgport -c listen_addresses='' -c unix_socket_directories=$socket" start
  cluster=$folder/data
  export PGHOST=$socket PGPORT=$pgport DATABASE_URL=postgres://parley@/postgres
  say "PostgreSQL runs at the socket of port $pgport in $socket, over $folder"
}

start_redis() {
  local server redisport=${REDISPORT:-16379}
  server=$(need redis-server "set REDIS_URL")
  "$server" --port "$redisport" --bind 127.0.0.1 --dir "$data" --save '' \
    --appendonly no --daemonize no >"$data/redis.log" &
  running[$!]=Redis
  export REDIS_URL=redis://127.0.0.1:$redisport/0
  say "Redis runs on port $redisport"
}

nginx=$(PATH=$PATH:/usr/sbin need nginx)  # Debian has it where people do not look
in_dotenv() {
  case $(tr '[:upper:]' '[:lower:]' <<<"${PARLEY_READ_DOTENV:-true}") in
    0 | false | no | off) return 1 ;;
  esac
  grep -qsE "^ *(export )?$1" .env
}
[ -n "${DATABASE_URL:-}" ] || in_dotenv "DATABASE_URL=[\"']?[a-z]" || start_postgres
# Without a value it means: no Redis.
[ -n "${REDIS_URL+set}" ] || in_dotenv REDIS_URL= || start_redis

# Not in a function: a signal is for the process itself, not for a shell around it.
python=.venv/bin/python
export CSRF_TRUSTED_ORIGINS=${CSRF_TRUSTED_ORIGINS:-http://localhost:$port,http://127.0.0.1:$port}
for n in 1 2; do
  : >"$data/web$n.out"  # what the last start said is not what this one says
  PORT=$((port + n)) "$python" manage.py serve >"$data/web$n.out" &
  web=$!
  running[$web]="web process $n ($web)"
  # One after the other: the first makes the tables, and shows a password once.
  until grep -q '^Next: ' "$data/web$n.out"; do
    kill -0 "$web" 2>/dev/null || { cat "$data/web$n.out" >&2; exit 1; }
    sleep 0.2
  done
  if [ "$n" -eq 1 ]; then grep '^Sign in\|^There is no' "$data/web1.out" >&2 || true; fi
done
for n in 1 2; do
  # The demo provider is in every web process, so it is found behind the proxy.
  PORT=$port "$python" manage.py worker &
  running[$!]="worker $n ($!)"
done
sed -e "s|@FOLDER@|$data/nginx|g" -e "s|@LISTEN@|${HOST:-127.0.0.1}:$port|" \
  -e "s|@WEB_1@|127.0.0.1:$((port + 1))|" -e "s|@WEB_2@|127.0.0.1:$((port + 2))|" \
  deploy/nginx.conf >"$data/nginx/nginx.conf"
"$nginx" -c "$data/nginx/nginx.conf" -e stderr &
running[$!]=nginx
say "Parley is running at http://127.0.0.1:$port; Ctrl-C ends all"
while wait -n -p ended "${!running[@]}" || [ -n "${ended:-}" ]; do
  name=${running[$ended]}
  unset "running[$ended]"
  case $name in
    web* | worker*) say "$name has ended; the others go on" ;;
    *) say "$name has ended; so do the others" && exit 1 ;;
  esac
done
