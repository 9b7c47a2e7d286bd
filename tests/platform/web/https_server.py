"""A real HTTPS server for the client's tests: https_server.py DIRECTORY makes an authority with certificates there,
prints "PORT MUTUAL_PORT PLAIN_PORT" and serves until its standard input ends.
"""

import hashlib
import http.server
import json
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def make_certificates(folder):
    openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        2,
        "-subj",
        "/CN=tests",
        "-keyout",
        folder / "ca.key",
        "-out",
        folder / "ca.pem",
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-keyout",
            folder / f"{name}.key",
            "-out",
            folder / f"{name}.request",
        )
        openssl(
            "x509",
            "-req",
            "-in",
            folder / f"{name}.request",
            "-CA",
            folder / "ca.pem",
            "-CAkey",
            folder / "ca.key",
            "-CAcreateserial",
            "-days",
            2,
            "-extfile",
            folder / "names",
            "-out",
            folder / f"{name}.pem",
        )


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self):
        super().setup()
        Handler.connections += 1

    def log_message(self, *_):
        pass

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        if path == "/echo":
            peer = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
            seen = {
                "method": self.command,
                "target": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": hashlib.sha256(body).hexdigest(),
                "bytes": len(body),
                "connections": Handler.connections,
                "peer": dict(pair[0] for pair in peer["subject"]).get("commonName", "") if peer else "",
            }
            self.answer(200, json.dumps(seen).encode(), X_Seen="Yes")
        elif path == "/refused":
            self.answer(409, b"in the way")
        elif path == "/moved":
            self.answer(302, b"", Location="/echo")
        elif path == "/silent":
            time.sleep(5)
            self.close_connection = True
        elif path == "/large":
            self.answer(200, bytes(range(256)) * 4096 * 8)
        elif path == "/broken":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
        elif path == "/ticks":  # one every 20 ms
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for number in range(250):
                    self.chunk(b"tick %d\n" % number)
                    time.sleep(0.02)
                self.chunk(b"")
            except OSError:
                self.close_connection = True
        else:
            self.answer(404, b"no such page")

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = handle_any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients that go away are what the tests are about


def serve(folder, kind):
    server = Server(("127.0.0.1", 0), Handler)
    if kind != "plain":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        if kind == "mutual":
            context.load_verify_locations(folder / "ca.pem")
            context.verify_mode = ssl.CERT_REQUIRED
        # The handshake belongs to the connection's thread, not to the one that accepts.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    make_certificates(directory)
    print(*(serve(directory, kind) for kind in ("tls", "mutual", "plain")), flush=True)
    sys.stdin.read()
