"""The proxy of Docker Sandboxes, as the fakes have it: what a sandbox's policy does not allow is answered by 403,
`host.docker.internal` is the host. It connects to the host alone, whatever is allowed.

usage: proxy.py STATE ADDRESS
"""

import fnmatch
import http.client
import os
import pathlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

STATE = pathlib.Path(sys.argv[1])


def rules(address):
    """Which patterns the sandbox at this address is allowed and denied, and whether the rest is allowed."""
    for box in (STATE / "boxes").iterdir():
        if (box / "address").exists() and (box / "address").read_text().strip() == address:
            text = (box / "policy").read_text() if (box / "policy").exists() else ""
            return parse(text.split())
    return [], [], False


def parse(words):
    """Reads the words of either program: `allow A,B`, or `--policy deny --allow-host A`."""
    allowed, denied, open_ = [], [], False
    for verb, hosts in zip(words[::2], words[1::2]):
        if verb == "--policy":
            open_ = hosts == "allow"
        elif verb in ("allow", "--allow-host"):
            allowed += hosts.split(",")
        elif verb in ("deny", "--block-host"):
            denied += hosts.split(",")
    return allowed, denied, open_


def matches(patterns, host, port):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in (host, f"{host}:{port}"))


class Proxy(BaseHTTPRequestHandler):
    def do_GET(self):
        target = urlsplit(self.path)
        host, port = target.hostname or "", target.port or 80
        if host == "host.docker.internal":
            host = "localhost"
        allowed, denied, open_ = rules(self.client_address[0])
        if matches(denied, host, port) or not (open_ or matches(allowed, host, port)):
            return self.send_error(403, "Blocked by network policy")
        if host != "localhost":
            return self.send_error(502, "no such host")
        length = int(self.headers.get("content-length", 0))
        upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        fields = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
        path = target._replace(scheme="", netloc="").geturl() or "/"
        try:
            upstream.request(self.command, path, self.rfile.read(length), fields)
            answer = upstream.getresponse()
        except OSError as error:
            return self.send_error(502, str(error))
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "keep-alive", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()
        while part := answer.read1(65536):
            self.wfile.write(part)

    do_POST = do_GET

    def do_CONNECT(self):
        self.send_error(403, "Blocked by network policy")


server = ThreadingHTTPServer((sys.argv[2], 0), Proxy)
(STATE / "proxy.new").write_text(f"{os.getpid()} {server.server_port}\n")
os.rename(STATE / "proxy.new", STATE / "proxy")
server.serve_forever()
