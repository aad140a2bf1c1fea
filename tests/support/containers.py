"""The parts of a stored file, and the file of any parts, its checksum right."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from invariant_bandits import storage

ORDER = ("int64", "float64", "float32", "int32", "uint8", "bool")
"""Of the arrays in a file, by their types."""
TYPES = {dtype: name for name, dtype in storage.DTYPES.items()}
Parts = tuple[str, dict[str, Any], Any]
"""Kind of a file, its arrays, and what it says of itself."""


def taken_apart(content: bytes) -> Parts:
    """The parts of a whole file."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata, data = header.pop("__metadata__"), content[8 + length :]
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], storage.DTYPES[entry["dtype"]]).reshape(
            entry["shape"]
        )
        arrays[name] = array.copy()
    return metadata["kind"], arrays, json.loads(metadata["about"])


def put_together(parts: Parts) -> bytes:
    """The file of these parts, its checksum right, whatever they are."""
    kind, arrays, about = parts
    said = json.dumps(about)
    metadata = {
        "about": said,
        "format": str(storage.FORMAT_VERSION),
        "kind": kind,
        "product": storage.PRODUCT,
        "sha256": storage.digest(kind, said, arrays),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    data = b""
    for name in sorted(
        arrays, key=lambda name: (ORDER.index(str(arrays[name].dtype)), name)
    ):
        array = np.ascontiguousarray(arrays[name])
        begin, data = len(data), data + array.tobytes()
        header[name] = {
            "dtype": TYPES[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    return with_header(header, data)


def with_header(header: Any, data: bytes) -> bytes:
    """A file with this header, as the library would write it."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text + data
