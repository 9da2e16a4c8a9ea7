"""Small main functions for the supervisor's tests: they execute commands of clients and report each step to the test's
socket."""

import json
import os
import signal
import socket
from dataclasses import replace

from odradek._ext.shm.layout import ProcessState
from odradek.net.handover import Receiver
from odradek.processes.table import PROCESSES
from tests.waiting import readable, which_readable

NAMES = {row.kind: row.name for row in PROCESSES}


def tell(context, word):
    """Send the test an event: "kind-ordinal word pid"."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        name = f"{NAMES[context.kind]}-{context.ordinal}"
        channel.sendto(f"EVENT={name} {word} {os.getpid()}".encode(), os.environ["NOTIFY_SOCKET"])


def loader(context):
    tell(context, f"clean={context.clean}")
    if "GATE" in os.environ:
        with open(os.environ["GATE"], "rb") as gate:
            gate.read()
    return 0


def wait_for_term():
    """A descriptor that becomes readable on SIGTERM."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return reading


def idle(context):
    term = wait_for_term()
    context.shm.set_state(ProcessState.SERVING)
    context.shm.wake(0)
    tell(context, "serving")
    while not readable(term, 0.1):
        context.shm.beat()
    tell(context, "stopping")
    return 0


def hopeless(context):
    raise RuntimeError("this process never starts")


class Worker:
    def __init__(self, context):
        self.context = context
        self.receiver = Receiver(context.handover_fd)
        self.term = wait_for_term()
        self.open = {}
        self.stubborn = False

    def run(self):
        shm = self.context.shm
        shm.set_state(ProcessState.SERVING)
        shm.wake(0)
        tell(self.context, "serving")
        while True:
            ready = which_readable([self.receiver, self.term, *self.open], 0.1)
            shm.beat()
            if self.term in ready:
                os.read(self.term, 16)
                tell(self.context, "stubborn" if self.stubborn else "stopping")
                if not self.stubborn:
                    return 0
            for sock in ready:
                if sock is self.receiver:
                    for item in self.receiver.receive():
                        self.greet(item)
                elif sock in self.open:
                    self.obey(sock)

    def greet(self, item):
        sock = socket.socket(fileno=item.fd)
        self.open[sock] = item.connection_id
        hello = {"worker": self.context.ordinal, "pid": os.getpid(), "id": item.connection_id}
        hello |= {"listener": item.listener_index, "peer": item.peer, "blocking": os.get_blocking(item.fd)}
        hello["nodelay"] = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        hello["keepalive"] = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        sock.sendall(json.dumps(hello).encode() + b"\n")

    def obey(self, sock):
        command = sock.recv(100).decode().strip()
        if command == "echo":
            sock.sendall(b"echo\n")
        elif command == "stubborn":
            self.stubborn = True
            sock.sendall(b"stubborn now\n")
        elif command == "raise":
            raise RuntimeError("the client sent raise")
        elif command == "hang":
            signal.pause()
        elif command == "":
            sock.close()
            self.receiver.report_closed([self.open.pop(sock)])
        else:
            os.kill(os.getpid(), signal.Signals[command])


def worker(context):
    return Worker(context).run()


MAINS = {"loader": loader, "worker": worker, "coordinator": idle}


def rows(replaced):
    """The real table with these mains; the cleaner stays the real one. `replaced`: "name=function ..."."""
    mains = {name: main.__name__ for name, main in MAINS.items()} | dict(pair.split("=") for pair in replaced.split())
    table = []
    for row in PROCESSES:
        main = f"tests.processes.supervisor.fake_mains:{mains[row.name]}" if row.name in mains else row.main
        table.append(replace(row, main=main))
    return tuple(table)
