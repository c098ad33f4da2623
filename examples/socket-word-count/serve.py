"""A server for lines: what is typed here, or piped in, goes to the first who connects."""

import argparse
import socket
import sys

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--port", type=int, default=9999)
port = options.parse_args().port

with socket.create_server(("localhost", port)) as server:
    print(f"waiting for a reader on port {port}", flush=True)
    reader, _ = server.accept()
    with reader:
        for line in sys.stdin:
            reader.sendall(line.encode())
        reader.recv(1)  # returns when the reader goes away
