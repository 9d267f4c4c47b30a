"""A service for the supervisor's tests: listens, tells so, and behaves as its settings say.

usage: fake_service.py NAME PREFIX FOLDER. It writes its environment to FOLDER/NAME.<n>.json.
"""

import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

name, prefix, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
settings = {
    key[len(prefix) :]: value for key, value in os.environ.items() if key.startswith(prefix)
}
starts = len(list(folder.glob(f"{name}.*.json")))
(folder / f"{name}.{starts}.json").write_text(json.dumps(dict(os.environ)))
print(f"{name} starts", file=sys.stderr, flush=True)


def end(*_):
    with (folder / "ends.txt").open("a") as file:
        file.write(f"{name}\n")
    os._exit(0)


mode = settings.get("FAKE", "")
if mode == "fails" or (mode == "fails-again" and starts):
    print("first line of the reason\nthe port is taken", file=sys.stderr)
    sys.exit(2)
if mode == "silent":
    time.sleep(600)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif mode == "busy":
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: end() if seen else seen.append(1))
else:
    signal.signal(signal.SIGTERM, end)


def listen(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((settings["HOST"], int(port)))
    server.listen()
    return server, f"{settings['HOST']}:{server.getsockname()[1]}"


line = {"event": "listening", "service": name}
sockets = []
if name == "scripted-models":
    kept, line["http"] = listen(settings["PORT"])
    sockets.append(kept)
else:
    kept, line["grpc"] = listen(settings["PORT"])
    sockets.append(kept)
    if "HTTP_PORT" in settings:
        kept, line["http"] = listen(settings["HTTP_PORT"])
        sockets.append(kept)
print("not the line", flush=True)
print(json.dumps(line), flush=True)
if mode == "dies":
    sys.exit(1)
if settings.get("EXIT_WITH_PARENT") == "true":
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), end()), daemon=True).start()
while True:
    time.sleep(60)
