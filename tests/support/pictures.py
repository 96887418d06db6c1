"""Picture files, and data sets of them in Karpathy's layout."""

import io
import json
import struct
import zlib

import numpy as np
from PIL import Image


def picture(seed, width=30, height=20, mode="RGB"):
    """A picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encoded(image, kind="png", **options):
    """The bytes of a picture's file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def huge(width, height):
    """The first bytes of a PNG of that size: all that is read before it is refused."""
    fields = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = b""
    for name, data in ((b"IHDR", fields), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")):
        crc = struct.pack(">I", zlib.crc32(name + data))
        chunks += struct.pack(">I", len(data)) + name + data + crc
    return b"\x89PNG\r\n\x1a\n" + chunks


def layout(path, images):
    """A data set of (image_id, split, filename) with captions of its own for each."""
    path.write_text(
        json.dumps(
            {
                "dataset": "tiny",
                "images": [
                    {
                        "imgid": image_id,
                        "split": split,
                        "filename": filename,
                        "sentences": [{"raw": f"A dog runs {n}."} for n in range(5)],
                    }
                    for image_id, split, filename in images
                ],
            }
        )
    )
    return path
