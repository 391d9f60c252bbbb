"""Pictures, and the program `lockon`, whose results these must be."""

import json
import os
import shutil
import struct
import subprocess
import zlib

import numpy as np
import pytest


def noise(shape, seed=1):
    """Smooth random pixels, which look nowhere like elsewhere."""
    random = np.random.default_rng(seed).integers(0, 256, shape).astype(np.float64)
    for axis in (0, 1):
        for _ in range(2):
            random = (np.roll(random, 1, axis) + 2 * random + np.roll(random, -1, axis)) / 4
    least, most = random.min(), random.max()
    return ((random - least) * 255 / (most - least)).round().astype(np.uint8)


def write_png(path, picture):
    """Writes a grey picture, or one in the order blue, green, red."""
    height, width = picture.shape[:2]
    colours = picture.ndim == 3
    rows = picture[..., ::-1] if colours else picture
    rows = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if colours else 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
        file.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


@pytest.fixture(scope="session")
def program():
    """Runs the program and gives the records that it prints."""
    path = os.environ.get("LOCKON_PROGRAM") or shutil.which("lockon")
    if path is None:
        pytest.skip("skipped: the program lockon is not here (LOCKON_PROGRAM names it)")

    def run(*arguments, records=True):
        ran = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()] if records else ran.stdout

    return run
