# Appends the file $1 to the file $2 and removes $1. Exits with an error number.
from=$1 to=$2
fail() { rm -f -- "$from"; exit "$1"; }
[ ! -d "$to" ] || fail 21
if [ -e "$to" ]; then
  [ -f "$to" ] || fail 22
else
  mkdir -p -- "${to%/*}" 2>/dev/null || fail 20
  { : >>"$to" && chmod 644 -- "$to"; } 2>/dev/null || fail 13
fi
{ cat -- "$from" >>"$to"; } 2>/dev/null || fail 13
rm -f -- "$from"
