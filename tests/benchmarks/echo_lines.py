"""A program for the tests of processes that talk in lines: says its cores, then echoes."""

import json
import os
import sys

sys.stdout.write(json.dumps(sorted(os.sched_getaffinity(0))) + "\n")
sys.stdout.flush()
for line in sys.stdin:
    if line.strip() == "fail":
        sys.exit("it was told to fail")
    sys.stdout.write(line)
    sys.stdout.flush()
