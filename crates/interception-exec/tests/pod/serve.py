"""Servers of a pod or of the network outside. Prints `ready` when they listen, and ends when its input does.

serve.py outside           all TCP connections, which rules redirect to port 7777, and UDP requests to port 53
serve.py pod UID           the ports of the proxy, as the proxy's user, and an application on port 8080
"""
import os, socket, struct, sys, threading

ANY = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}


def listen(family, port, kind=socket.SOCK_STREAM, transparent=False, address=None):
    s = socket.socket(family, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if transparent:
        s.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
    s.bind((address or ANY[family], port))
    if kind == socket.SOCK_STREAM:
        s.listen(64)
    return s


def original(connection):
    """The destination that the client connected to."""
    try:
        if connection.family == socket.AF_INET:
            raw = connection.getsockopt(socket.SOL_IP, 80, 16)
            return socket.inet_ntop(socket.AF_INET, raw[4:8]) + ":" + str(struct.unpack("!H", raw[2:4])[0])
        raw = connection.getsockopt(socket.IPPROTO_IPV6, 80, 28)
        return socket.inet_ntop(socket.AF_INET6, raw[8:24]) + ":" + str(struct.unpack("!H", raw[2:4])[0])
    except OSError:
        # Not redirected.
        return ":".join(map(str, connection.getsockname()[:2]))


def to_application(connection):
    """Connects to the application with the client's address, as Envoy's original source filter does."""
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.settimeout(3)
    s.setsockopt(socket.SOL_IP, 19, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1337)
    s.bind((connection.getpeername()[0], 0))
    s.connect(connection.getsockname()[:2])
    return s.recv(200).decode().strip()


def accept(server, name, transparent):
    while True:
        connection, peer = server.accept()
        try:
            answer = f"{name} from {peer[0]} to {original(connection)}"
            if transparent and connection.getsockname()[1] != server.getsockname()[1]:
                answer = f"{name} from {peer[0]}; {to_application(connection)}"
        except OSError as error:
            answer = f"{name} failed: {error}"
        connection.sendall((answer + "\n").encode())
        connection.close()


def answer(server, name):
    while True:
        _, peer = server.recvfrom(1500)
        server.sendto(f"{name}\n".encode(), peer)


def start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


if sys.argv[1] == "outside":
    for family in ANY:
        start(accept, listen(family, 7777), "outside", False)
    # An answer comes from the address that was asked.
    for address in ("192.0.2.53", "192.0.2.54"):
        start(answer, listen(socket.AF_INET, 53, socket.SOCK_DGRAM, address=address), "outside")
else:
    transparent = sys.argv[3] == "TPROXY"
    for family in ANY:
        start(accept, listen(family, 15001), "15001", False)
        start(accept, listen(family, 15006, transparent=transparent), "15006", transparent)
        start(accept, listen(family, 15053), "15053", False)
        for port in (8080, 9090, 15008):
            start(accept, listen(family, port), "application", False)
    if not transparent:
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    # A socket of the proxy's user, at the address that requests are redirected to.
    start(answer, listen(socket.AF_INET, 15053, socket.SOCK_DGRAM, address="127.0.0.1"), "15053")
print("ready", flush=True)
sys.stdin.read()
