"""Small files of every kind that may be sent, and some that may not."""

from __future__ import annotations

import struct
import zlib


def png(width: int = 2, height: int = 2) -> bytes:
    """A picture that browsers show."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return (
            struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = (b"\0" + b"\x20\x90\x80" * width) * height
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


PNG = png()
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01"
GIF = b"GIF89a\x01\x00\x01\x00\x80\x00\x00"
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"
ZIP = b"PK\x03\x04\x14\x00\x06\x00\x08\x00"
ELF = b"\x7fELF\x02\x01\x01\x00"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
TEXT = "Grüße, Ada.\n".encode()
