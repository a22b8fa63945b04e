"""The load for ``decode_server.py``: ``decode_load.py PORT STEPS`` prints tokens per second."""

import json
import sys
import time
import urllib.request

if __name__ == "__main__":
    url, steps = f"http://127.0.0.1:{sys.argv[1]}/generate", int(sys.argv[2])
    body = json.dumps({"steps": steps}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    started = time.perf_counter()
    with opener.open(urllib.request.Request(url, body), timeout=60) as answer:
        tokens = json.load(answer)["tokens"]
    rate = tokens / (time.perf_counter() - started)
    print(f"Output token throughput (tok/s): {rate:.2f}")
    print(json.dumps({"summary": {"output_tok_s": rate}}, indent=1))
