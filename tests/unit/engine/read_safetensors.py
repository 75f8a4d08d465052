# Prints a safetensors file; with the stock package, where installed, its view of it is compared.
import json
import struct
import sys

KINDS = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "U8": "B"}

with open(sys.argv[1], "rb") as file:
    data = file.read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + length])
metadata = header.pop("__metadata__", {})
padding = metadata.pop("attnscope.padding", None)
end = 0
for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, last = t["data_offsets"]
    assert begin == end, "a hole or an overlap before " + name
    end = last
    if padding and name.startswith(padding):
        continue
    start = 8 + length + begin
    assert start % 64 == 0, name + " is not aligned"
    count = (last - begin) // struct.calcsize(KINDS[t["dtype"]])
    values = struct.unpack_from("<%d%s" % (count, KINDS[t["dtype"]]), data, start)
    print(name, t["dtype"], t["shape"], values)
assert 8 + length + end == len(data), "bytes after the last tensor"
sys.stdout.flush()  # what was printed comes before what is written as bytes
for key, value in sorted(metadata.items()):
    sys.stdout.buffer.write(f"{key} = {value}\n".encode())
    sys.stdout.flush()
try:
    import safetensors
except ImportError:
    pass
else:
    with safetensors.safe_open(sys.argv[1], framework="np") as stock:
        assert set(header) == set(stock.keys())
