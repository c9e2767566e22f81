"""Ansible module `apt_key_file`: downloads the key of a package repository, and writes it only if its fingerprint is known.

It computes the fingerprints itself (RFC 4880, sections 4.2 and 12.2), because a new machine may not have gpg.
"""

import base64
import hashlib
import re
import tempfile
from pathlib import Path
from typing import Iterator, List, Tuple  # noqa: UP035 - Python 3.8 on the machines

_BLOCK = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n]+:[^\n]*\n)*\n([A-Za-z0-9+/=\n]+?)(?:\n=[^\n]{4})?"
    r"\n-----END PGP PUBLIC KEY BLOCK-----"
)
_MAX_BYTES = 1_000_000
_PUBLIC_KEY = 6
_TIMEOUT_SECONDS = 30


def list_fingerprints(text: str) -> List[str]:  # noqa: UP006
    """Return the fingerprint of each primary key in an ASCII-armored file. Raise ValueError if it cannot be read."""
    blocks = _BLOCK.findall(text.replace("\r\n", "\n"))
    if not blocks or len(blocks) != text.count("-----BEGIN"):
        raise ValueError("it is not an ASCII-armored OpenPGP key")
    fingerprints = []
    for block in blocks:
        for tag, body in _split_packets(base64.b64decode(block)):
            if tag == _PUBLIC_KEY:
                if body[:1] != b"\x04":
                    raise ValueError("it has a key that is not of version 4")
                prefix = b"\x99" + len(body).to_bytes(2, "big")
                fingerprints.append(hashlib.sha1(prefix + body).hexdigest().upper())  # noqa: S324
    return fingerprints


def _split_packets(data: bytes) -> Iterator[Tuple[int, bytes]]:  # noqa: UP006
    position = 0
    while position < len(data):
        first = data[position]
        if not first & 0x80:
            raise ValueError("it has something that is not an OpenPGP packet")
        if first & 0x40:
            tag, kind = first & 0x3F, data[position + 1]
            if kind < 192:
                start, length = position + 2, kind
            elif kind < 224:
                start, length = position + 3, ((kind - 192) << 8) + data[position + 2] + 192
            elif kind == 255:
                start = position + 6
                length = int.from_bytes(data[position + 2 : start], "big")
            else:
                raise ValueError("it has a packet of unknown length")
        else:
            tag, size = first >> 2 & 0xF, 1 << (first & 3)
            if size == 8:
                raise ValueError("it has a packet of unknown length")
            start = position + 1 + size
            length = int.from_bytes(data[position + 1 : start], "big")
        if start + length > len(data):
            raise ValueError("it is truncated")
        yield tag, data[start : start + length]
        position = start + length


def find_problem(text: str, expected: List[str]) -> str:  # noqa: UP006
    """Return why the file is not exactly the expected keys, or an empty string."""
    try:
        fingerprints = list_fingerprints(text)
    except (ValueError, IndexError) as error:
        return str(error)
    if sorted(fingerprints) != sorted(expected):
        return f"its fingerprint is {', '.join(fingerprints) or 'missing'}, expected {', '.join(expected)}"
    return ""


def main() -> None:
    from ansible.module_utils.basic import AnsibleModule
    from ansible.module_utils.urls import open_url

    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "fingerprints": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    url, dest = module.params["url"], Path(module.params["dest"])
    expected = module.params["fingerprints"]
    if dest.is_file() and not find_problem(dest.read_text("ascii", "replace"), expected):
        module.exit_json(changed=False)
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        content = open_url(url, timeout=_TIMEOUT_SECONDS).read(_MAX_BYTES)
    except Exception as error:  # noqa: BLE001 - urllib, ssl, and Ansible have many
        module.fail_json(msg=f"{url} cannot be downloaded: {error}")
    problem = find_problem(content.decode("ascii", "replace"), expected)
    if problem:
        module.fail_json(
            msg=f"{url} is not the key that gpuyard knows: {problem}. Nothing was changed; compare it with the "
            "publisher's announcement"
        )
    with tempfile.NamedTemporaryFile(dir=module.tmpdir, delete=False) as file:
        file.write(content)
    module.atomic_move(file.name, str(dest))
    module.set_mode_if_different(str(dest), "0644", changed=True)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
