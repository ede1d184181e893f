# Makes a package for each tool below /out, as a registry of plain files offers it.
mkdir -p /out/simple/tiny /out/npm /out/apt /out/cargo/ti/ny /tmp/deb/DEBIAN /tmp/npm/package /tmp/cargo/tiny-1.0.0/src
cd /out/simple/tiny
python3 - <<'PYTHON'
import zipfile
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as wheel:
    info = "tiny-1.0.dist-info/"
    wheel.writestr("tiny.py", "print('tiny from pip')\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "tiny.py,,\n")
PYTHON
echo '<a href="tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>' > index.html

echo '{"name":"tiny","version":"1.0.0","main":"index.js"}' > /tmp/npm/package/package.json
echo 'console.log("tiny from npm")' > /tmp/npm/package/index.js
tar -czf /out/npm/tiny-1.0.0.tgz -C /tmp/npm package
sum=$(sha1sum /out/npm/tiny-1.0.0.tgz | cut -d ' ' -f 1)
cat > /out/npm/tiny <<JSON
{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0","main":"index.js",
"dist":{"tarball":"https://allowed.test/npm/tiny-1.0.0.tgz","shasum":"$sum"}}}}
JSON

printf 'Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@localhost>\nDescription: tiny\n' \
  > /tmp/deb/DEBIAN/control
dpkg-deb --build /tmp/deb /out/apt/tiny_1.0_all.deb > /dev/null
cd /out/apt && dpkg-scanpackages . > Packages 2> /dev/null

printf '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n' > /tmp/cargo/tiny-1.0.0/Cargo.toml
echo 'pub fn say() { println!("tiny from cargo") }' > /tmp/cargo/tiny-1.0.0/src/lib.rs
tar -czf /out/cargo/tiny-1.0.0.crate -C /tmp/cargo tiny-1.0.0
echo '{"dl":"https://allowed.test/cargo/{crate}-{version}.crate"}' > /out/cargo/config.json
sum=$(sha256sum /out/cargo/tiny-1.0.0.crate | cut -d ' ' -f 1)
echo "{\"name\":\"tiny\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"$sum\",\"features\":{},\"yanked\":false}" \
  > /out/cargo/ti/ny/tiny
chmod -R a+rX /out
