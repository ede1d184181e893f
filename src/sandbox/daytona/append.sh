# Adds a file to the end of another. $1: the file, $2: the other. Ends with the number of the error.
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
