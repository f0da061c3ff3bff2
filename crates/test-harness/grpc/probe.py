"""A gRPC client or server for tests, driven over standard input and output, one JSON document a line.

    probe.py serve NAME     says {"port": N} and answers every call with NAME, until its input ends
    probe.py call TARGET    for each {"times": N, "headers": {...}, "timeout": SECONDS} on its input calls that often, one call
                            after another, and says {"answers": {NAME: N}, "errors": {CODE: N}, "detail": TEXT, "seconds": N}

A call that cannot be made yet is an error; nothing waits for the channel to become ready. Channels to targets that a control
plane resolves (`xds:`) use the credentials that it configures, and plaintext without any.
"""

import json
import sys
import time
from collections import Counter
from concurrent import futures

import grpc
import grpc.experimental

METHOD = "/rutter.probe.Echo/Echo"


def same(message):
    return message


def say(document):
    print(json.dumps(document), flush=True)


class Echo(grpc.GenericRpcHandler):
    def __init__(self, name):
        self.answer = name.encode()

    def service(self, details):
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self.answer, request_deserializer=same, response_serializer=same
        )


def serve(name):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), handlers=(Echo(name),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say({"port": port})
    sys.stdin.read()
    server.stop(None)


def channel_to(target):
    if not target.startswith("xds:"):
        return grpc.insecure_channel(target)
    plaintext = grpc.experimental.insecure_channel_credentials()
    return grpc.secure_channel(target, grpc.xds_channel_credentials(plaintext))


def call(target):
    with channel_to(target) as channel:
        echo = channel.unary_unary(METHOD, request_serializer=same, response_deserializer=same)
        for line in sys.stdin:
            ask = json.loads(line)
            answers, errors, detail = Counter(), Counter(), ""
            headers = tuple(ask.get("headers", {}).items())
            start = time.monotonic()
            for _ in range(ask["times"]):
                try:
                    answers[echo(b"", timeout=ask.get("timeout", 30), metadata=headers).decode()] += 1
                except grpc.RpcError as error:
                    errors[error.code().name] += 1
                    detail = error.details()
            say({"answers": answers, "errors": errors, "detail": detail, "seconds": time.monotonic() - start})


if __name__ == "__main__":
    {"serve": serve, "call": call}[sys.argv[1]](sys.argv[2])
