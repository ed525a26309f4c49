"""Runs each program in a new session of Monty, an interpreter of a part of Python."""

import json
import sys

from pydantic_monty import CollectString, Monty, MontyError


def run(pool: Monty, code: str) -> dict[str, object]:
    output = CollectString(max_bytes=None)
    with pool.checkout() as session:
        try:
            session.feed_run(code, print_callback=output)
        except MontyError as error:
            return {"stdout": output.output, "stderr": str(error), "exit_code": 1}
    return {"stdout": output.output, "stderr": "", "exit_code": 0}


with Monty() as workers:
    for line in sys.stdin:
        print(json.dumps(run(workers, json.loads(line)["code"])), flush=True)
