"""A small HTTP server that decodes with the project's own kernel, in Triton's interpreter.

``decode_server.py PORT``; GET /health, POST /generate {"steps": n}. It launches the kernel with the
config that it would use in production and knows nothing of being forced to another.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from occupancy_probe.launch.device import planned_sm_count
from occupancy_probe.launch.interpreter import mend_bf16
from occupancy_probe.launch.load import load_problem

FOLDER = Path(__file__).resolve().parents[2] / "kernels" / "sparse_mla_decode"
WORKLOAD = {"concurrency": 2, "topk": 24, "window": 8, "context": 64}
PRODUCTION = {"BLOCK_T": 16, "num_warps": 4, "num_stages": 2}


class Decoder:
    """One batch of requests; a step decodes one token of each."""

    def __init__(self) -> None:
        mend_bf16()
        self.problem = load_problem(FOLDER, "SparseMlaDecode", {})
        with planned_sm_count(1):
            self.inputs = self.problem.make_inputs(WORKLOAD, "cpu", 0)
        self.turn = threading.Lock()

    def decode(self, steps: int) -> int:
        with self.turn:
            for _ in range(steps):
                self.problem.launch(self.inputs, PRODUCTION)
        assert not self.inputs["out"].isnan().any()
        return steps * WORKLOAD["concurrency"]


DECODER = Decoder()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(200, {"tokens": DECODER.decode(asked["steps"])})

    def answer(self, status: int, content: dict) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
