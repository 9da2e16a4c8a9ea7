# What `emulated` and `on_musl` run with `sh -eu`: $PROGRAM, a Python, imports every native module; the command `odradek` starts a
# broker, writes 10,000 records, reads them back by offset and (with confluent-kafka) as a group, and stops the broker. (`odradek demo`
# does not work under qemu 7, which reports wrongly when its broker has started.)
odradek --version
$PROGRAM - <<END
import importlib, pathlib, platform, re
import odradek._ext
found = {
    f"odradek._ext.{package.parent.name}.{name.decode()}"
    for package in pathlib.Path(odradek._ext.__file__).parent.glob("*/*.so")
    for name in re.findall(rb"PyInit_(\w+)\0", package.read_bytes())
}
assert found
for name in sorted(found):
    importlib.import_module(name)
print(f"imported {len(found)} native modules on {platform.machine()}, Python {platform.python_version()}")
END
files=$(mktemp -d)
address=127.0.0.1:$($PROGRAM -c "import socket; print(socket.create_server((\"127.0.0.1\", 0)).getsockname()[1])")
odradek start --set listeners=PLAINTEXT://$address --set log.dirs=$files/data >$files/broker.log 2>&1 &
broker=$!
trap 'cat $files/broker.log; kill $broker' EXIT
odradek -b $address cluster wait --timeout 5m
seq 10000 >$files/sent
odradek -b $address topic create numbers -p 1
odradek -b $address produce numbers $files/sent
odradek -b $address consume numbers --from beginning --exit --timeout 300 >$files/read
cmp $files/sent $files/read
how="by offset"
if $PROGRAM -c "import confluent_kafka" 2>/dev/null; then
  odradek -b $address consume numbers --group readers --from beginning --max 10000 --timeout 300 >$files/read
  cmp $files/sent $files/read
  how="by offset and as a group"
fi
trap - EXIT
kill $broker
wait $broker
rm -r $files
echo "wrote and read 10,000 records, $how; the broker has stopped in order"
