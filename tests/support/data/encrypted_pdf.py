"""A PDF with a password, encrypted as PDF 1.4 says (standard handler, revision 2: RC4 with 40 bits)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_PADDING = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")
_PERMISSIONS = -4


def encrypted_pdf(words: str, *, user: str, owner: str) -> bytes:
    """One page with these words. Without a user password anybody may read it, although it is encrypted."""
    identity = b"0123456789abcdef"
    owner_entry = _rc4(hashlib.md5(_padded(owner)).digest()[:5], _padded(user))
    permissions = (_PERMISSIONS & 0xFFFFFFFF).to_bytes(4, "little")
    key = hashlib.md5(_padded(user) + owner_entry + permissions + identity).digest()[:5]
    page = f"BT /F1 12 Tf 50 700 Td ({words}) Tj ET".encode("latin-1")
    content = _rc4(hashlib.md5(key + (5).to_bytes(3, "little") + bytes(2)).digest()[:10], page)
    encrypt = (
        f"<< /Filter /Standard /V 1 /R 2 /O <{owner_entry.hex()}> /U <{_rc4(key, _PADDING).hex()}> /P {_PERMISSIONS} >>"
    )
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 5 0 R"
        b" /Resources << /Font << /F1 3 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
    ]
    return _file(objects, f"/Encrypt {encrypt} /ID [<{identity.hex()}> <{identity.hex()}>]")


def _file(objects: Sequence[bytes], trailer: str) -> bytes:
    content, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"trailer\n<< /Size {size} /Root 1 0 R {trailer} >>\nstartxref\n{len(content)}\n%%EOF"
    return content + f"xref\n0 {size}\n0000000000 65535 f \n{table}{end}".encode()


def _padded(password: str) -> bytes:
    return (password.encode("latin-1") + _PADDING)[:32]


def _rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    i = j = 0
    out = bytearray()
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)
