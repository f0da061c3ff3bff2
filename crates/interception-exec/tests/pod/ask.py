"""Connections of a pod or of the network outside: each line of the input is `user group protocol address port`.

Prints what answered, a line for each.
"""
import os, socket, sys


def ask(user, group, protocol, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
    with socket.socket(family, socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM) as s:
        s.settimeout(3)
        s.connect((address, int(port)))
        if protocol == "udp":
            s.send(b"question")
        return s.recv(200).decode().strip()


for line in sys.stdin.read().splitlines():
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            result = ask(*line.split())
        except OSError as error:
            result = type(error).__name__
        os.write(write, (result + "\n").encode())
        os._exit(0)
    os.close(write)
    os.wait()
    print(os.fdopen(read).read().strip())
