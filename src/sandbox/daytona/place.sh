# Moves a file to where a path leads, whole, with these permission bits. $1: the file, $2: the path, $3: the bits.
# Ends with the number of the error.
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
