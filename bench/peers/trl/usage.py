"""Runs a command and writes what it used, with its children, as JSON: usage.py FILE COMMAND..."""

import json
import resource
import subprocess
import sys
import time

started = time.monotonic()
status = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
# Linux counts in KiB, macOS in bytes.
unit = 1 if sys.platform == "darwin" else 1024
with open(sys.argv[1], "w") as file:
    json.dump(
        {
            "seconds": time.monotonic() - started,
            "cpuSeconds": used.ru_utime + used.ru_stime,
            "peakBytes": used.ru_maxrss * unit,
        },
        file,
    )
sys.exit(status if status >= 0 else 128 - status)
