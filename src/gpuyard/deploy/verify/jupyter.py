"""Check notebooks: they answer only with the token, and only on the head itself."""

import json

from gpuyard.deploy.access.notebook import HUB_PORT, PORT, TOKEN_FILE
from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, VerificationContext

_NAME = "notebooks"
_REJECTED = (401, 403)
# Both programs run on the head and print only HTTP statuses, so tokens never leave it.
_PROBE_LAB = """
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
answer = {"without": ask(""), "with": ask(open(token_file).read().strip())}
answer["mode"] = oct(stat.S_IMODE(os.stat(token_file).st_mode))
sys.stdout.write(json.dumps(answer))
"""
_PROBE_HUB = """
import http.cookiejar, json, os, stat, sys, time, urllib.error, urllib.parse, urllib.request
base, name = sys.argv[1:]
token_file = os.path.expanduser("~" + name + "/.jupyter_token")
cookies = http.cookiejar.CookieJar()
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
def ask(path, form=None):
    body = None if form is None else urllib.parse.urlencode(form).encode()
    try:
        return opener.open(base + path, body, 10).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)
def log_in(token):
    ask("/hub/login")
    sent = [cookie.value for cookie in cookies if (cookie.name, cookie.path) == ("_xsrf", "/hub/")]
    form = {"username": name, "password": token, "_xsrf": "".join(sent[:1])}
    return ask("/hub/login?next=/hub/home", form)
until = time.monotonic() + 60
while ask("/hub/api/") != 200 and time.monotonic() < until:
    time.sleep(0.5)
without = [ask("/hub/api/user"), log_in("not-" + name)]
answer = {"without": max(without, key=lambda status: status != 403)}
log_in(open(token_file).read().strip())
answer["with"] = ask("/hub/api/user")
answer["mode"] = oct(stat.S_IMODE(os.stat(token_file).st_mode))
sys.stdout.write(json.dumps(answer))
"""


def check_notebooks(context: VerificationContext) -> list[CheckResult]:
    head = context.head
    if head is None or "jupyter" not in context.roles(head):
        return []
    users = context.loaded.deployment.users
    hub = len(users) > 1
    port = HUB_PORT if hub else PORT
    program, argument = (_PROBE_HUB, users[0].name) if hub else (_PROBE_LAB, TOKEN_FILE)
    command = f"python3 -c '{program}' http://127.0.0.1:{port} {argument}"
    done = context.run_as_root(head, command)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return [CheckResult(_NAME, head.name, False, last_line(done.stderr))]
    return [evaluate_answer(answer, head.name, hub=hub), *_check_isolation(context, head, port)]


def evaluate_answer(answer: dict[str, object], host: str, *, hub: bool) -> CheckResult:
    """Turn the statuses that the head's own server returned into a check."""
    without = answer.get("without")
    if without not in _REJECTED:
        return CheckResult(
            _NAME, host, False, f"without a token it returns {without} instead of 403"
        )
    ok = answer.get("with") == 200 and answer.get("mode") == "0o600"
    token = "a user's own token" if hub else "the token"
    detail = f"{answer.get('with')} with {token}, {without} without"
    if answer.get("mode") != "0o600":
        detail += f"; others can read the token ({answer.get('mode')})"
    return CheckResult(_NAME, host, ok, detail)


def _check_isolation(context: VerificationContext, head: Host, port: int) -> list[CheckResult]:
    """Check that another machine of the cluster cannot reach the notebooks."""
    others = [host for host in context.hosts if host != head]
    if not others:
        return []
    program = f'import socket; socket.create_connection(("{head.cluster_address}", {port}), 3)'
    blocked = context.run(others[0], f"python3 -c '{program}'").returncode != 0
    verb = "cannot" if blocked else "can"
    return [CheckResult(_NAME, others[0].name, blocked, f"{verb} reach port {port} of the head")]
