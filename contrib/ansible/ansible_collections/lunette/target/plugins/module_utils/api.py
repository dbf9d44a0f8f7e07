# Copyright: The Lunette contributors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Requests to the HTTP API of a Lunette server."""

from __future__ import annotations

import json
import time
from urllib.error import HTTPError
from urllib.parse import quote

from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.urls import open_url

ARGUMENTS = {
    "url": {"type": "str", "default": "unix:/run/lunette/api.sock"},
    "token": {"type": "str", "no_log": True},
    "token_file": {"type": "path"},
    "ca_path": {"type": "path"},
    "timeout": {"type": "int", "default": 60},
}

EXCLUSIVE = [["token", "token_file"]]

# Seconds that a request waits for the end of a job.
JOB_WAIT = 20

# Seconds in which a disk that a LUN has served is closed.
CLOSE_WAIT = 10


class Refused(Exception):
    """An answer other than success: its status, title and detail."""

    def __init__(self, status, title, detail):
        super().__init__(f"{title}: {detail}" if detail else title)
        self.status = status
        self.title = title


class Unreachable(Exception):
    """A request without an answer."""


class Api:
    """The API of a server."""

    def __init__(self, url, token=None, token_file=None, ca_path=None, timeout=60):
        self.headers = {}
        self.options = {"timeout": timeout, "use_proxy": False, "follow_redirects": "none", "http_agent": "lunette-ansible"}
        if url.startswith("unix:"):
            self.site = "http://localhost"
            self.options["unix_socket"] = url[len("unix:"):]
            return
        if not url.startswith("https://"):
            raise Unreachable(f"url is {url}, and neither unix:PATH nor https://HOST:PORT")
        self.site = url.rstrip("/")
        if token_file:
            token = first_word(token_file)
        if not token:
            raise Unreachable("the API takes a token over https: give token or token_file")
        self.headers["Authorization"] = f"Bearer {token}"
        if ca_path:
            self.options["ca_path"] = ca_path

    def request(self, method, path, body=None, headers=None):
        """Sends a request. Returns the value of the answer and its ETag."""
        headers = {**self.headers, **(headers or {})}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body)
        try:
            answer = open_url(self.site + path, data=data, headers=headers, method=method, **self.options)
            return value_of(answer), answer.headers.get("ETag")
        except HTTPError as error:
            raise refusal(error) from error
        except Exception as error:
            raise Unreachable(f"the server at {self.site} does not answer: {error}") from error

    def find(self, path):
        """Reads an object. Returns it with its ETag; None and None when there is none."""
        try:
            return self.request("GET", path)
        except Refused as refused:
            if refused.status == 404:
                return None, None
            raise

    def patiently(self, method, path, body=None):
        """Changes a volume. One that is being opened or closed is changed a moment later."""
        end = time.monotonic() + CLOSE_WAIT
        while True:
            try:
                return self.request(method, path, body)[0]
            except Refused as refused:
                if "try again in a moment" not in str(refused) or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def await_job(self, job, limit):
        """Waits until a job has succeeded. Returns it."""
        what = f"job {job['id']}, {job['kind']} of {job['object']}"
        end = time.monotonic() + limit
        while job["state"] in ("queued", "running"):
            left = int(end - time.monotonic())
            if left < 0:
                raise Refused(0, what, f"it has not ended after {limit} s; it goes on")
            now, _etag = self.find(f"/v1/jobs/{job['id']}?wait_seconds={min(left, JOB_WAIT)}")
            # A restart of the server forgets its jobs, and numbers new ones from 1 on.
            if now is None or (now["object"], now["created"]) != (job["object"], job["created"]):
                raise Refused(0, what, "the server was started again, and does not know it: look whether it was done")
            job = now
        if job["state"] != "succeeded":
            raise Refused(0, what, f"{job['state']}: {job['message']}")
        return job


def first_word(path):
    """The token that a file begins with, as the server's own file of tokens has it."""
    try:
        with open(path, encoding="utf-8") as file:
            words = file.readline().split()
    except OSError as error:
        raise Unreachable(f"cannot read the token in {path}: {error.strerror}") from error
    if not words:
        raise Unreachable(f"{path} does not begin with a token")
    return words[0]


def value_of(answer):
    """The JSON of an answer; None when it has no body."""
    text = to_text(answer.read())
    return json.loads(text) if text else None


def refusal(error):
    """The refusal that an answer tells: RFC 9457, or the status alone."""
    try:
        problem = value_of(error)
        return Refused(error.code, problem["title"], problem["detail"])
    except (ValueError, KeyError, TypeError):
        return Refused(error.code, f"HTTP {error.code}", error.reason)


def part(name):
    """A name as a part of a path."""
    return quote(str(name), safe="")


def connect(module):
    """The API that the arguments of a module lead to."""
    return Api(**{key: module.params[key] for key in ARGUMENTS})


def refuse(module, refused):
    """Refuses what another task may have made possible by then: in check mode that is a warning."""
    if not module.check_mode:
        raise refused
    module.warn(str(refused))


def run(module, work):
    """Does the work of a module with the API, and ends the module."""
    try:
        result = work(connect(module))
    except (Refused, Unreachable) as error:
        status = getattr(error, "status", None)
        module.fail_json(msg=str(error), **({"status": status} if status else {}))
    if not module._diff:
        result.pop("diff", None)
    module.exit_json(**result)
