"""Start a kernel as a web page does, and send it a slow cell. A Python that has Jupyter runs this.

Arguments: the port and for how many seconds; the token comes by standard input.
"""

import asyncio
import json
import sys
import urllib.request

from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

PORT, SECONDS = sys.argv[1:]
HEADERS = {"Authorization": f"token {sys.stdin.read()}"}
ADDRESS = f"127.0.0.1:{PORT}/api/kernels"


async def main() -> None:
    request = urllib.request.Request(f"http://{ADDRESS}", b"{}", HEADERS, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        kernel = json.loads(answer.read())["id"]
    channels = await websocket_connect(
        HTTPRequest(f"ws://{ADDRESS}/{kernel}/channels", headers=HEADERS)
    )
    cell = {
        "channel": "shell",
        "header": {"msg_id": "1", "msg_type": "execute_request", "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "content": {"code": f"import time; time.sleep({SECONDS})", "silent": False},
    }
    await channels.write_message(json.dumps(cell))
    while True:
        output = json.loads(str(await channels.read_message()))
        if (
            output["parent_header"].get("msg_id") == "1"
            and output["content"].get("execution_state") == "busy"
        ):
            channels.close()
            return


asyncio.run(main())
