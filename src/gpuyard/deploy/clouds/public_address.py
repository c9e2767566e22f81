"""This machine's public IPv4 address, as a web service of Amazon sees it."""

import ipaddress
import os

from gpuyard.errors import GpuyardError
from gpuyard.web_client import build_opener, call_within

URL_VARIABLE = "GPUYARD_ADDRESS_URL"
_URL = "https://checkip.amazonaws.com"
_MAX_BYTES = 100
_TIMEOUT_SECONDS = 10.0


def find_public_address() -> str:
    """Return the address from which this machine's connections arrive. Raises if it cannot be found."""
    url = os.environ.get(URL_VARIABLE, _URL)

    def read() -> bytes:
        with build_opener().open(url, timeout=_TIMEOUT_SECONDS) as response:
            return bytes(response.read(_MAX_BYTES))

    try:
        address = ipaddress.IPv4Address(call_within(_TIMEOUT_SECONDS, read).decode("ascii").strip())
        if not address.is_global:
            raise ValueError(f"it is {address}, which is not public")
    except (OSError, ValueError) as error:
        raise GpuyardError(
            f"cannot find this machine's public address at {url} ({error}); write the addresses that you connect from as "
            "`ssh_from` in the file, one address with /32 after it"
        ) from None
    return str(address)
