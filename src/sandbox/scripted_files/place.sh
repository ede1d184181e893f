# Moves the file $1 to the path $2, following symlinks, with the permission bits $3. Exits with an error number.
from=$1 to=$2
fail() { rm -f -- "$from"; exit "$1"; }
if [ -L "$to" ]; then
  to=$(readlink -m -- "$to"; printf x)
  to=${to%?x}
fi
[ ! -d "$to" ] || fail 21
mkdir -p -- "${to%/*}" 2>/dev/null || fail 20
chmod "$3" "$from" || fail 13
mv -T -f -- "$from" "$to" 2>/dev/null || fail 13
