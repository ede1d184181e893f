# node-packages.sh NAME...: makes the Debian packages NAME (`nodejs`, `npm`) of the Node in /mirror, and adds them to apt's sources.
set -e
mkdir -p /packages /tmp/node /tmp/nodejs/usr/bin /tmp/npm/usr/bin /tmp/npm/usr/lib
tar -xzf /mirror/v*/node-v*.tar.gz -C /tmp/node --strip-components=1 --no-same-owner
mv /tmp/node/bin/node /tmp/nodejs/usr/bin/
mv /tmp/node/bin/npm /tmp/npm/usr/bin/
mv /tmp/node/lib/node_modules /tmp/npm/usr/lib/
for name in "$@"; do
  case $name in
    nodejs) version=$(/tmp/nodejs/usr/bin/node -p process.versions.node) ;;
    npm) version=$(jq -r .version /tmp/npm/usr/lib/node_modules/npm/package.json) ;;
  esac
  mkdir "/tmp/$name/DEBIAN"
  cat >"/tmp/$name/DEBIAN/control" <<CONTROL
Package: $name
Version: 1:$version-1
Architecture: amd64
Maintainer: test <test@localhost>
Description: $name
CONTROL
  dpkg-deb --build -Znone "/tmp/$name" /packages/
done
rm -r /tmp/node /tmp/nodejs /tmp/npm
cd /packages
dpkg-scanpackages . >Packages
echo 'deb [trusted=yes] file:///packages ./' >/etc/apt/sources.list.d/packages.list
