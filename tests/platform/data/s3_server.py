"""An S3 server (moto's) for the tests: prints its address, does what lines of standard input say, and ends with it.

Proxies requests so that tests can have faults: `cut BYTES` breaks off the next object after so many bytes; `fail N`
answers the next N requests with 503. `log` prints the requests since the last one. From `authorize` on it asks every
request for a signature by the keys that this prints; `trust` ends that.
"""

import http.client
import http.server
import json
import logging
import sys
import threading
import uuid

import boto3
from moto.server import ThreadedMotoServer


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend = None
    cut = None
    failures = 0
    seen: list = []  # noqa: RUF012

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        Proxy.seen.append(f"{self.command} {self.path} {self.headers.get('Range') or '-'}")
        if Proxy.failures > 0:
            Proxy.failures -= 1
            self.answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
            return
        connection = http.client.HTTPConnection("127.0.0.1", Proxy.backend)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        content = response.read()
        own = ("transfer-encoding", "connection", "content-length")
        kept = [(name, value) for name, value in response.getheaders() if name.lower() not in own]
        if Proxy.cut is not None and self.command == "GET" and "list-type" not in self.path:
            most, Proxy.cut = Proxy.cut, None
            self.send_response(response.status)
            for name, value in kept:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:most])
            self.wfile.flush()
            self.close_connection = True
            return
        self.answer(response.status, kept, content)

    def answer(self, status, headers, content):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def log_message(self, *_):
        pass


def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    backend = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    backend.start()
    Proxy.backend = backend.get_host_and_port()[1]
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{proxy.server_address[1]}", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "cut":
            Proxy.cut = int(words[1])
        elif words[0] == "fail":
            Proxy.failures = int(words[1])
        elif words[0] == "log":
            print(len(Proxy.seen), *Proxy.seen, sep="\n", flush=True)
            Proxy.seen = []
        elif words[0] == "bucket":
            call(backend, "PUT", f"/{words[1]}")
        elif words[0] == "put":  # KEY BYTES of the letter x
            call(backend, "PUT", f"/{words[1]}", words[2][0].encode() * int(words[3]))
        elif words[0] == "authorize":
            print(*keys(f"http://127.0.0.1:{Proxy.backend}"), sep="\n", flush=True)
            call(backend, "POST", "/moto-api/reset-auth", b"0")
        elif words[0] == "trust":
            call(backend, "POST", "/moto-api/reset-auth", b"inf")
        print("done", flush=True)


def keys(url):
    """Access key and secret key of a new user who may do everything with S3."""
    own = {"aws_access_key_id": "A", "aws_secret_access_key": "B", "region_name": "us-east-1"}
    iam = boto3.client("iam", endpoint_url=url, **own)
    name = f"user-{uuid.uuid4().hex}"
    iam.create_user(UserName=name)
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def call(backend, method, path, body=b""):
    connection = http.client.HTTPConnection("127.0.0.1", backend.get_host_and_port()[1])
    connection.request(method, path, body, {"Content-Length": str(len(body))})
    assert connection.getresponse().status == 200, path


if __name__ == "__main__":
    main()
