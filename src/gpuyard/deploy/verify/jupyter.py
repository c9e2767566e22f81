"""Of notebooks: they answer to who has the token, to nobody else, and only on the head itself."""

import json

from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, Deployed, last_words

_NAME = "notebooks"
_LAB, _HUB = 8888, 8000
_OF_LAB = "/etc/gpuyard/jupyter_token"
_REFUSED = (401, 403)
# both run on the head, where tokens stay: only statuses are told
_ASK = """
import json, os, stat, sys, time, urllib.error, urllib.request
base, token_file = sys.argv[1:]
def ask(token):
    headers = {"Authorization": "token " + token} if token else {}
    request = urllib.request.Request(base + "/api/status", headers=headers)
    try:
        return urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)
until = time.monotonic() + 30
while not isinstance(ask(""), int) and time.monotonic() < until:
    time.sleep(0.5)
found = {"without": ask(""), "with": ask(open(token_file).read().strip())}
found["mode"] = oct(stat.S_IMODE(os.stat(token_file).st_mode))
sys.stdout.write(json.dumps(found))
"""
_ASK_HUB = """
import http.cookiejar, json, os, stat, sys, time, urllib.error, urllib.parse, urllib.request
base, name = sys.argv[1:]
token_file = os.path.expanduser("~" + name + "/.jupyter_token")
cookies = http.cookiejar.CookieJar()
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
def ask(path, words=None):
    body = None if words is None else urllib.parse.urlencode(words).encode()
    try:
        return opener.open(base + path, body, 10).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)
def log_in(token):
    ask("/hub/login")
    sent = [cookie.value for cookie in cookies if (cookie.name, cookie.path) == ("_xsrf", "/hub/")]
    words = {"username": name, "password": token, "_xsrf": "".join(sent[:1])}
    return ask("/hub/login?next=/hub/home", words)
until = time.monotonic() + 60
while ask("/hub/api/") != 200 and time.monotonic() < until:
    time.sleep(0.5)
without = [ask("/hub/api/user"), log_in("not-" + name)]
found = {"without": max(without, key=lambda status: status != 403)}
log_in(open(token_file).read().strip())
found["with"] = ask("/hub/api/user")
found["mode"] = oct(stat.S_IMODE(os.stat(token_file).st_mode))
sys.stdout.write(json.dumps(found))
"""


def notebooks(deployed: Deployed) -> list[CheckResult]:
    head = deployed.head
    if head is None or "jupyter" not in deployed.roles(head):
        return []
    people = deployed.opened.deployment.users
    hub = len(people) > 1
    port = _HUB if hub else _LAB
    program, whose = (_ASK_HUB, people[0].name) if hub else (_ASK, _OF_LAB)
    asked = f"python3 -c '{program}' http://127.0.0.1:{port} {whose}"
    done = deployed.run_as_root(head, asked)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return [CheckResult(_NAME, head.name, False, last_words(done.stderr))]
    return [judged(answer, head.name, hub=hub), *_from_elsewhere(deployed, head, port)]


def judged(answer: dict[str, object], host: str, *, hub: bool) -> CheckResult:
    """What the head found of its own server, as one check."""
    without = answer.get("without")
    if without not in _REFUSED:
        return CheckResult(
            _NAME, host, False, f"without a token it says {without}, and should say 403"
        )
    ok = answer.get("with") == 200 and answer.get("mode") == "0o600"
    whose = "a person's own token" if hub else "the token"
    words = f"{answer.get('with')} with {whose}, {without} without"
    if answer.get("mode") != "0o600":
        words += f"; others can read the token ({answer.get('mode')})"
    return CheckResult(_NAME, host, ok, words)


def _from_elsewhere(deployed: Deployed, head: Host, port: int) -> list[CheckResult]:
    """Another machine of the cluster can't reach them."""
    others = [host for host in deployed.hosts if host != head]
    if not others:
        return []
    program = f'import socket; socket.create_connection(("{head.inside}", {port}), 3)'
    done = deployed.run(others[0], f"python3 -c '{program}'")
    words = "can't be reached from it" if done.returncode else f"can reach port {port} of the head"
    return [CheckResult(_NAME, others[0].name, done.returncode != 0, words)]
