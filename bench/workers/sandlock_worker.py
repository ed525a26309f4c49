"""Runs each program with sandlock. Arguments: the interpreter, a folder to write in, a home, then what may be read."""

import json
import sys
import threading

from sandlock import Sandbox, StdioMode

python, work, home, *readable = sys.argv[1:]


def run(code: str, stdin: bytes) -> dict[str, object]:
    sandbox = Sandbox(fs_readable=readable, fs_writable=[work, home], cwd=work)
    piped = StdioMode.PIPED
    with sandbox.popen([python, "-c", code], stdin=piped, stdout=piped, stderr=piped) as process:
        errors: list[bytes] = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        writer = threading.Thread(target=give, args=(process.stdin, stdin))
        reader.start()
        writer.start()
        output = process.stdout.read()
        reader.join()
        writer.join()
        status = process.wait().exit_code
    return {"stdout": output.decode(), "stderr": errors[0].decode(), "exit_code": status}


def give(pipe, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[pipe.write(view) :]
    pipe.close()


for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps(run(asked["code"], asked["stdin"].encode())), flush=True)
