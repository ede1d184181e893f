#!/bin/sh
# Every case must hold; the first that does not ends the test.
check() {
  got=$(sh convert.sh "$1")
  if [ "$got" != "$2" ]; then
    echo "convert.sh $1: expected $2, got $got" >&2
    exit 1
  fi
}
check 0 32
check 100 212
check -40 -40
echo "all cases hold"
