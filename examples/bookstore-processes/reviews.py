"""The reviews service: answers each request with its version.  usage: reviews.py VERSION ADDRESS PORT"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

version, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Reviews(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"reviews {version}\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer((address, port), Reviews).serve_forever()
